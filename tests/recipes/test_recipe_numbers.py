"""Tests of numbers derived from a recipe: GPUs, tasks, bounds, and values of a series' runs."""

from __future__ import annotations

from typing import Any

import pytest

from samples import CARD, GOOD
from trimaran.recipes.expectation import Expectation
from trimaran.recipes.recipe import Recipe, Resources, Series


def resources(**more: Any) -> Resources:
    return Resources.model_validate({"cpus_per_task": 1, "walltime": "00:10:00", **more})


@pytest.mark.parametrize(("gpus", "tasks", "mps", "each"), [
    (0, 4, None, 0), (1, 4, None, 4), (2, 4, None, 8), (1, 4, 2, 2), (1, 8, 4, 2), (1, 6, 6, 1),
])
def test_gpus_of_a_node_are_those_of_its_tasks_which_may_share(
    gpus: int, tasks: int, mps: int | None, each: int
) -> None:
    asked = resources(gpus_per_task=gpus, tasks_per_node=tasks, mps=mps, nodes=3)
    assert asked.gpus_per_node == each


@pytest.mark.parametrize(("nodes", "least", "accepted"), [
    (4, 2, True), (4, 1, True), (6, 3, True), (4, 3, False), (4, 4, False), (4, 8, False),
])
def test_the_ranks_that_are_left_share_evenly(nodes: int, least: int, accepted: bool) -> None:
    try:
        resources(nodes=nodes, min_nodes=least)
    except ValueError:
        assert not accepted
    else:
        assert accepted


EXPECTED = {**GOOD["expected"][0]}
SERIES: dict[str, Any] = {
    **{key: value for key, value in GOOD.items() if key != "expected"},
    "resources": {**GOOD["resources"], "tasks_per_node": 4},
    "launcher": "srun", "env": {"A": "whole", "B": "whole"},
    "args": {"model": "resnet20", "epochs": 1, "base-lr": 0.1},
    "series": {"over": "ranks", "points": {
        8: {"expected": [{**EXPECTED, "value": 81}], "env": {"A": "point"}, "args": {"epochs": 7}},
    }},
}


@pytest.mark.parametrize("full", [1, 3, 4])
@pytest.mark.parametrize("number", range(1, 25))
def test_ranks_fill_one_node_after_the_other(full: int, number: int) -> None:
    """All ranks are on one node, or fill several nodes completely; other numbers are refused.

    The test finds the smallest possible number of nodes by trial.
    """
    series = Series.model_validate(SERIES["series"])
    ways = [(nodes, number // nodes) for nodes in range(1, number + 1)
            if number % nodes == 0 and number // nodes <= full]
    wanted = next((way for way in ways if way[0] == 1 or way[1] == full), None)
    if wanted is None:
        with pytest.raises(ValueError, match=f"{number} ranks .* {full} ranks"):
            series.split(number, resources(tasks_per_node=full))
    else:
        found = series.split(number, resources(tasks_per_node=full))
        assert (found["nodes"], found["tasks_per_node"]) == wanted


def test_a_point_has_its_own_words_and_the_others_of_all() -> None:
    found = Recipe.model_validate(SERIES).at(8)
    assert found.env == {"A": "point", "B": "whole"}
    assert found.args == {"model": "resnet20", "epochs": 7, "base-lr": 0.1}
    assert [one.value for one in found.expected] == [81]
    assert (found.resources.nodes, found.resources.tasks_per_node) == (2, 4)


@pytest.mark.parametrize(("value", "seeds", "accepted"), [
    (90.0, (89.0, 91.0), True), (89.0, (89.0, 91.0), True), (91.0, (91.0, 89.0), True),
    (88.9, (89.0, 91.0), False), (91.1, (89.0, 91.0), False), (90.0, (90.0,), True),
])
def test_a_measured_value_lies_among_its_seeds(
    value: float, seeds: tuple[float, ...], accepted: bool
) -> None:
    measured = {
        "date": "2026-11-01", "host": "a host", "command": "c", "image_digest": None,
        "seeds": dict(enumerate(seeds)),
    }
    given = {**EXPECTED, "value": value, "source": None, "measured": measured}
    try:
        Expectation.model_validate(given)
    except ValueError:
        assert not accepted
    else:
        assert accepted


@pytest.mark.parametrize(("value", "lower", "upper", "low", "high"), [
    (200.0, -0.25, 0.5, 150.0, 300.0), (-200.0, -0.25, 0.5, -250.0, -100.0),
    (200.0, None, 0.5, None, 300.0), (200.0, -0.25, None, 150.0, None), (0.0, -0.5, 0.5, 0.0, 0.0),
])
def test_a_lower_bound_is_below_and_an_upper_one_above(
    value: float, lower: float | None, upper: float | None, low: float | None, high: float | None
) -> None:
    given = {**EXPECTED, "value": value, "lower": lower, "upper": upper}
    assert Expectation.model_validate(given).bounds == (low, high)


def test_a_value_that_is_not_judged_has_a_reason_and_no_margins() -> None:
    bare = {key: value for key, value in EXPECTED.items() if key not in ("lower", "upper", "warn")}
    unjudged = Expectation.model_validate({**bare, "unjudged": "another framework"})
    assert unjudged.bounds == (None, None)
    assert unjudged.fault("resnet-imagenet", CARD) == ("", "")
    assert Expectation.model_validate(bare).fault("resnet-imagenet", CARD)[0] == "lower"
    for wrong in ({"unjudged": ""}, {"unjudged": "why", "lower": -0.1},
                  {"unjudged": "why", "upper": 0.1}):
        with pytest.raises(ValueError, match="unjudged"):
            Expectation.model_validate({**bare, **wrong})
