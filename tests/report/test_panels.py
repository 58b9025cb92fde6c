"""Tests of a report's panels (charts): definition by the app card, gaps, and thinned curves."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hostile import quick
from samples import CARD
from trimaran.report.panels import MOST, Line, Panel, Point, collect, drawable, thinned
from trimaran.verdict.metrics import Event


def events(key: str, values: list[Any]) -> list[Event]:
    return [
        Event(time_ms=5000 + 500 * step, key=key, value=value, metadata={"step": step})
        for step, value in enumerate(values, start=1)
    ]


def test_values_are_over_steps_and_seconds_in_the_unit_of_the_card() -> None:
    found = collect([Event(5000, "run_start"), *events("eval_accuracy", [0.5, 0.75])], CARD)
    assert [panel.title for panel in found] == ["evaluation top-1, %"]
    assert found[0].lines == [Line("val_top1", [Point(1, 0.5, 50.0), Point(2, 1.0, 75.0)], 0)]


def test_a_line_keeps_its_colour_whether_another_is_there_or_not() -> None:
    both = collect([*events("train_loss", [1.0]), *events("eval_loss", [1.0])], CARD)
    alone = collect(events("eval_loss", [1.0]), CARD)
    assert [line.color for line in both[0].lines] == [0, 1]
    assert [line.color for line in alone[0].lines] == [1]


def test_what_cannot_be_drawn_is_a_gap_and_nothing_alone_is_no_panel() -> None:
    [panel] = collect(events("train_loss", [1.0, None, 1e300, "x", 2.0]), CARD)
    values = [point.value for point in panel.lines[0].points]
    assert [math.isnan(value) for value in values] == [False, True, True, True, False]
    assert collect(events("train_loss", [math.nan, None, 10**400]), CARD) == []
    assert collect([], CARD) == []


def test_points_at_no_place_are_left_out() -> None:
    told = [(1, 0.0, 1.0), (-1, 1.0, 2.0), (2, math.inf, 3.0), (3, math.nan, 4.0), (4, 2.0, 5.0)]
    assert [point.step for point in drawable(told)] == [1, 4]
    assert drawable([(1, 0.0, math.nan), (2, 0.0, -1e300)]) == []


def test_an_axis_is_logarithmic_where_the_card_wants_it_and_a_decade_is_spanned() -> None:
    def panel(*values: float) -> Panel:
        points = [Point(step, step, value) for step, value in enumerate(values)]
        return Panel("loss", "log", [Line("a", points, 0)])

    assert panel(0.1, 2.0).logarithmic
    assert not panel(1.0, 9.0).logarithmic
    assert not panel(0.0, 9.0).logarithmic
    assert not panel(0.1, 2.0)._replace(axis="plain").logarithmic


values = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300)


@quick
@given(values, st.integers(4, 40))
def test_thinned_lines_lose_no_peak_and_stay_in_order(found: list[float], most: int) -> None:
    points = [Point(step, step / 10, value) for step, value in enumerate(found)]
    kept = thinned(points, most)
    assert len(kept) <= most
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert all(before.step < after.step for before, after in itertools.pairwise(kept))
    numbers = [value for value in found if math.isfinite(value)]
    if numbers:
        drawn = [point.value for point in kept if math.isfinite(point.value)]
        assert (min(drawn), max(drawn)) == (min(numbers), max(numbers))


def test_few_points_stay_as_they_are() -> None:
    points = [Point(step, 0.0, 1.0) for step in range(MOST)]
    assert thinned(points) == points
