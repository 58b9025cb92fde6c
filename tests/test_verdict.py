from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import GOOD
from trimaran.errors import RunError
from trimaran.recipes import Recipe
from trimaran.verdict import Event, judge, measure, read_events


def event(key: str, value: Any, **metadata: int) -> Event:
    return Event(time_ms=1, key=key, value=value, metadata=metadata)


ACCURACY = {"metric": "val_top1", "unit": "%", "at": "end", "value": 90.0, "lower": -0.01,
            "source": "a paper"}
SPEED = {"metric": "throughput", "unit": "img/s", "at": "median-after-epoch-1", "value": 1000.0,
         "lower": -0.1, "upper": 0.5, "source": "a paper"}


def recipe(*expected: dict[str, Any]) -> Recipe:
    return Recipe.model_validate({**GOOD, "expected": list(expected)})


def test_measures_end_best_and_median_after_an_epoch() -> None:
    events = [
        event("eval_accuracy", 0.5, epoch_num=1), event("eval_accuracy", 0.9, epoch_num=2),
        event("eval_accuracy", 0.8, epoch_num=3),
        *(event("throughput", v, epoch_num=e) for v, e in [(1, 1), (10, 2), (30, 2), (20, 3)]),
    ]
    assert measure(events, "val_top1", "end") == 80.0
    assert measure(events, "val_top1", "best") == 90.0
    assert measure(events, "throughput", "median-after-epoch-1") == 20
    assert measure(events, "throughput", "median-after-epoch-3") is None


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, 1.01, -0.1, True, "0.95", None]
)
@pytest.mark.parametrize("at", ["end", "best"])
def test_what_is_no_fraction_is_a_failure_and_not_skipped(value: Any, at: str) -> None:
    events = [event("eval_accuracy", 0.95), event("eval_accuracy", value)]
    assert math.isnan(measure(events, "val_top1", at) or 0)
    verdict = judge(recipe({**ACCURACY, "at": at}), events, changed=[], unlike=[])
    assert verdict.outcome == "FAIL"
    assert verdict.rows[0].measured_text == "not valid"


def test_a_speed_that_is_no_number_is_not_left_out_of_the_median() -> None:
    speeds = [event("throughput", v, epoch_num=2) for v in (1000, math.nan, 1000)]
    verdict = judge(recipe(SPEED), speeds, changed=[], unlike=[])
    assert verdict.outcome == "FAIL"


def test_other_data_have_no_reference() -> None:
    events = [event("eval_accuracy", 0.95)]
    verdict = judge(recipe(ACCURACY), events, changed=[], unlike=[], other_data="other data")
    assert (verdict.outcome, verdict.reasons) == ("NO REFERENCE", ["other data"])


@pytest.mark.parametrize(
    ("accuracy", "outcome"), [(0.9, "PASS"), (0.8911, "PASS"), (0.8909, "FAIL"), (None, "FAIL")]
)
def test_a_value_below_its_bound_or_not_reported_fails(
    accuracy: float | None, outcome: str
) -> None:
    events = [] if accuracy is None else [event("eval_accuracy", accuracy)]
    assert judge(recipe(ACCURACY), events, changed=[], unlike=[]).outcome == outcome


def test_throughput_has_no_reference_on_other_hardware_and_says_why() -> None:
    events = [event("eval_accuracy", 0.91), event("throughput", 1, epoch_num=2)]
    verdict = judge(recipe(ACCURACY, SPEED), events, changed=[], unlike=["8 cores, not 2"])
    assert [row.outcome for row in verdict.rows] == ["PASS", "NO REFERENCE"]
    assert verdict.outcome == "NO REFERENCE"
    assert verdict.reasons == ["this machine is not cpu-2core: 8 cores, not 2"]


def test_accuracy_is_judged_on_any_hardware() -> None:
    events = [event("eval_accuracy", 0.91)]
    assert judge(recipe(ACCURACY), events, changed=[], unlike=["8 cores"]).outcome == "PASS"


def test_a_changed_recipe_has_no_reference() -> None:
    verdict = judge(recipe(ACCURACY), [event("eval_accuracy", 0.2)], changed=["epochs"], unlike=[])
    assert verdict.outcome == "NO REFERENCE"
    assert "epochs" in verdict.reasons[0]


def test_one_failure_makes_the_whole_a_failure() -> None:
    events = [event("eval_accuracy", 0.2), event("throughput", 1000, epoch_num=2)]
    verdict = judge(recipe(SPEED, ACCURACY), events, changed=[], unlike=[])
    assert [row.outcome for row in verdict.rows][:2] == ["PASS", "FAIL"]
    assert verdict.outcome == "FAIL"


def test_reported_metrics_without_a_number_are_shown_but_not_judged() -> None:
    events = [event("eval_accuracy", 0.9), event("throughput", 500, epoch_num=1)]
    verdict = judge(recipe(ACCURACY), events, changed=[], unlike=[])
    assert verdict.outcome == "PASS"
    assert [(row.metric, row.required) for row in verdict.rows] == [
        ("val_top1", True), ("throughput", False),
    ]


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_accuracy_never_turns_pass_into_fail(first: float, second: float) -> None:
    low, high = sorted((first, second))
    outcomes = [
        judge(recipe(ACCURACY), [event("eval_accuracy", v)], changed=[], unlike=[]).outcome
        for v in (low, high)
    ]
    assert outcomes != ["PASS", "FAIL"]


def test_a_last_line_cut_short_is_left_out_and_any_other_is_named(tmp_path: Path) -> None:
    line = json.dumps({"time_ms": 1, "key": "seed", "value": 3})
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{line}\n{{"time_ms": 1, "ke')
    assert len(read_events(path)) == 2
    path.write_text(f"{line}\nbroken\n{line}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: not a metric"):
        read_events(path)
    with pytest.raises(RunError, match="is missing"):
        read_events(tmp_path / "none")
