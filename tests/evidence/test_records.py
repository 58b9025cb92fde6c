"""Evidence of benchmarks: minimum, median and maximum must agree with the values of the rounds."""

from __future__ import annotations

import pytest

from trimaran.evidence.records import Ratio, Spread


@pytest.mark.parametrize(("values", "told", "accepted"), [
    ([3.0, 1.0, 8.0], (1.0, 3.0, 8.0), True), ([3.0, 1.0, 8.0, 4.0], (1.0, 3.5, 8.0), True),
    ([3.0, 1.0, 8.0], (1.0, 4.0, 8.0), False),  # 4.0 is the mean
    ([3.0, 1.0, 8.0], (0.5, 3.0, 8.0), False), ([3.0, 1.0, 8.0], (1.0, 3.0, 9.0), False),
    ([2.0], (2.0, 2.0, 2.0), True),
])
def test_least_median_and_most_are_those_of_the_rounds(
    values: list[float], told: tuple[float, float, float], accepted: bool
) -> None:
    given = {"values": values, **dict(zip(("min", "median", "max"), told, strict=True))}
    try:
        Spread.model_validate(given)
    except ValueError:
        assert not accepted
    else:
        assert accepted


@pytest.mark.parametrize(("values", "goal", "met"), [
    ([0.5, 1.0, 2.0], 1.0, True), ([0.5, 0.9, 2.0], 1.0, False), ([1.0, 1.2, 9.0], None, None),
    ([0.1, 1.1, 1.2], 1.0, True),
])
def test_a_goal_is_met_by_the_median(
    values: list[float], goal: float | None, met: bool | None
) -> None:
    ratio = Ratio(
        text="a / b", of="a", over="b", goal=goal, values=values, min=values[0], median=values[1],
        max=values[2],
    )
    assert ratio.met is met
