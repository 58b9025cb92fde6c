"""Compare the numbers of a verdict with a second computation from their definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import quick
from samples import CARD, GOOD
from trimaran.recipes.cards import Metric
from trimaran.recipes.recipe import Recipe
from trimaran.verdict.metrics import Event, judge_metrics, measure, worst

SPEED = CARD.metrics["throughput"]


def event(key: str, value: Any, **metadata: int) -> Event:
    return Event(time_ms=1, key=key, value=value, metadata=metadata)


def middle(values: list[float]) -> float:
    """Return the median by its definition: equal numbers of values are below and above it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


windows = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 9999), st.integers(1, 500)), max_size=60
)


@quick
@given(windows, st.integers(0, 5))
def test_a_median_is_of_every_value_of_the_epochs_after(
    found: list[tuple[int, int, int]], first: int
) -> None:
    """A median is taken over all values of the epochs after the epoch `first` of the rule.

    The order and the number of the values do not matter.
    """
    events = [
        event("throughput", speed / 7, epoch_num=epoch, step=step) for epoch, speed, step in found
    ]
    late = [speed / 7 for epoch, speed, _ in found if epoch > first]
    wanted = middle(late) if late else None
    assert measure(events, SPEED, f"median-after-epoch-{first}") == (
        wanted if wanted is None else pytest.approx(wanted)
    )


@pytest.mark.parametrize("count", [3, 4, 25, 200, 201])
def test_a_median_is_of_a_run_that_grows_faster_and_slower(count: int) -> None:
    """The median is right for rising and for falling values.

    The values are squares, so that the median differs from the mean and other quantiles.
    """
    speeds = [float(at * at) for at in range(count)]
    for told in (speeds, speeds[::-1]):
        events = [event("throughput", speed, epoch_num=2 + at // 7) for at, speed in
                  enumerate(told)]
        assert measure(events, SPEED, "median-after-epoch-1") == middle(speeds)


def test_windows_that_name_no_epoch_are_of_the_first() -> None:
    events = [event("throughput", 1.0, step=9), event("throughput", 5.0, epoch_num=2, step=10)]
    assert measure(events, SPEED, "median-after-epoch-1") == 5.0
    assert measure(events[:1], SPEED, "median-after-epoch-0") is None


@quick
@given(st.lists(st.integers(1, 99), min_size=1, max_size=9), st.sampled_from(["higher", "lower"]))
def test_end_and_best_are_of_all_values_in_their_unit(values: list[int], better: Any) -> None:
    metric = Metric(key="score", unit="%", factor=100, better=better)
    events = [event(key, value / 128) for value in values for key in ("score", "score_other")]
    last, best = values[-1], max(values) if better == "higher" else min(values)
    assert measure(events, metric, "end") == pytest.approx(100 * last / 128)
    assert measure(events, metric, "best") == pytest.approx(100 * best / 128)


def test_only_the_last_value_counts_at_the_end() -> None:
    """An earlier NaN does not affect the last value (`end`), but it affects the best (`best`)."""
    top1 = CARD.metrics["val_top1"]
    events = [event("eval_accuracy", math.nan), event("eval_accuracy", 0.5)]
    assert measure(events, top1, "end") == 50.0
    assert math.isnan(measure(events, top1, "best") or 0.0)


@pytest.mark.parametrize(("value", "valid"), [
    (0.0, True), (100.0, True), (100.0001, False), (-0.0001, False),
])
def test_the_ends_of_what_can_be_can_be(value: float, valid: bool) -> None:
    metric = Metric(key="a", better="higher", least=0, most=100)
    assert metric.can_be(value) is valid
    assert math.isnan(measure([event("a", value)], metric, "end") or 0.0) is not valid


@pytest.mark.parametrize(("value", "finite"), [
    (1, 1.0), (0.5, 0.5), (-3, -3.0), (math.inf, None), (-math.inf, None), (math.nan, None),
    (True, None), ("1", None), (None, None), (10**400, None), ([1.0], None),
])
def test_what_is_a_finite_number(value: Any, finite: float | None) -> None:
    assert event("a", value).finite == finite


@pytest.mark.parametrize(("outcomes", "whole"), [
    (["PASS"], "PASS"), (["PASS", "PASS"], "PASS"), (["PASS", "FAIL"], "FAIL"),
    (["NO REFERENCE", "FAIL", "PASS"], "FAIL"), (["PASS", "NO REFERENCE"], "NO REFERENCE"),
    ([], "NO REFERENCE"),
])
def test_the_whole_is_as_bad_as_its_worst(outcomes: Any, whole: str) -> None:
    assert worst(outcomes) == whole


EXPECTED = {
    "val_top1": {"unit": "%", "at": "best", "value": 90.0, "lower": -0.02},
    "throughput": {
        "unit": "img/s", "at": "median-after-epoch-1", "value": 1000.0, "lower": -0.1,
    },
}


def recipe(*metrics: str) -> Recipe:
    expected = [{"metric": name, "source": "a paper", **EXPECTED[name]} for name in metrics]
    return Recipe.model_validate({**GOOD, "expected": expected})


RUN = [
    event("run_start", None, ranks=2), event("eval_accuracy", 0.95, epoch_num=1),
    event("eval_accuracy", 0.5, epoch_num=2),
    *(event("throughput", speed, epoch_num=epoch) for epoch, speed in ((1, 1.0), (2, 950.0))),
]


def test_each_expectation_is_judged_at_its_own_moment() -> None:
    found = judge_metrics(recipe("val_top1", "throughput"), CARD, RUN, changed=[], unlike=[])
    assert [(row.measured, row.low, row.outcome) for row in found.rows] == [
        (pytest.approx(95), pytest.approx(88.2), "PASS"), (950.0, pytest.approx(900), "PASS"),
    ]


@pytest.mark.parametrize(("how", "outcomes", "reasons"), [
    ({}, ["PASS", "PASS"], 0),
    ({"unlike": ["4 cores, not 2"]}, ["PASS", "NO REFERENCE"], 1),
    ({"changed": ["epochs"]}, ["NO REFERENCE", "NO REFERENCE"], 1),
    ({"other_data": "other data"}, ["NO REFERENCE", "NO REFERENCE"], 1),
    ({"changed": ["epochs"], "other_data": "other data", "unlike": ["4 cores"]},
     ["NO REFERENCE", "NO REFERENCE"], 3),
])
def test_what_was_another_experiment_is_not_judged_and_says_why(
    how: dict[str, Any], outcomes: list[str], reasons: int
) -> None:
    given = {"changed": [], "unlike": [], **how}
    found = judge_metrics(recipe("val_top1", "throughput"), CARD, RUN, **given)
    assert [row.outcome for row in found.rows] == outcomes
    assert len(found.reasons) == reasons
    assert found.outcome == ("PASS" if outcomes == ["PASS"] * 2 else "NO REFERENCE")


def test_what_the_recipe_does_not_expect_is_shown_at_the_cards_moment() -> None:
    """Without an expectation in the recipe, a metric is measured as its app card says.

    The card shows the median throughput of all epochs, here the median of 1 and 950.
    """
    assert SPEED.shown == "median-after-epoch-0"
    found = judge_metrics(recipe("val_top1"), CARD, RUN, changed=[], unlike=[])
    assert [(row.metric, row.measured) for row in found.rows[1:]] == [("throughput", 475.5)]


@pytest.mark.parametrize(("ranks", "notes"), [
    ([(0, 2)], []), ([(0, 2), (6, 2)], []),
    ([(0, 2), (6, 1)], ["from step 6 on 1 ranks, before 2"]),
    ([(0, 4), (6, 2), (8, 2), (9, 4)],
     ["from step 6 on 2 ranks, before 4", "from step 9 on 4 ranks, before 2"]),
])
def test_a_run_that_went_on_with_other_ranks_says_so(
    ranks: list[tuple[int, int]], notes: list[str]
) -> None:
    events = [
        event("resumed_from_step" if step else "run_start", None, step=step, ranks=count)
        for step, count in ranks
    ]
    assert judge_metrics(recipe(), CARD, events, changed=[], unlike=[]).notes == notes


@pytest.mark.parametrize(
    ("measured", "outcome", "warned"),
    [(80.0, "PASS", False), (79.9, "PASS", True), (60.0, "PASS", True), (59.9, "FAIL", False)],
)
def test_a_value_between_the_limits_passes_with_a_warning(
    measured: float, outcome: str, warned: bool
) -> None:
    """100 img/s are expected: the verdict has a warning below 80, and fails below 60."""
    recipe = Recipe.model_validate({
        **GOOD,
        "expected": [{"metric": "throughput", "unit": "img/s", "at": "end", "value": 100,
                      "lower": -0.4, "warn": -0.2, "source": "a publication"}],
    })
    verdict = judge_metrics(recipe, CARD, [event("throughput", measured, epoch_num=1)],
                            changed=[], unlike=[])
    assert verdict.outcome == outcome
    assert any("throughput" in note and "80" in note for note in verdict.notes) is warned


@pytest.mark.parametrize("limits", [{"warn": -0.2}, {"lower": -0.2, "warn": -0.2},
                                    {"lower": -0.2, "warn": -0.3}, {"lower": -0.2, "warn": 0}])
def test_a_warning_needs_a_lower_limit_below_it(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="warn"):
        Recipe.model_validate({
            **GOOD,
            "expected": [{"metric": "throughput", "unit": "img/s", "at": "end", "value": 100,
                          "source": "a publication", **limits}],
        })
