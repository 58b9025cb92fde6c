from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from samples import CARD, GOOD
from trimaran.errors import RunError
from trimaran.recipes.recipe import Recipe
from trimaran.verdict.metrics import EXIT_CODES, Event, judge_metrics, measure, read_events


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
    assert measure(events, CARD.metrics["val_top1"], "end") == 80.0
    assert measure(events, CARD.metrics["val_top1"], "best") == 90.0
    assert measure(events, CARD.metrics["throughput"], "median-after-epoch-1") == 20
    assert measure(events, CARD.metrics["throughput"], "median-after-epoch-3") is None


@pytest.mark.parametrize(("epoch", "value"), [(1, 3.0), (2, 2.0), (10, 1.0), (3, None)])
def test_the_value_of_an_epoch_is_its_last_one(epoch: int, value: float | None) -> None:
    events = [
        event("throughput", speed, epoch_num=number)
        for number, speed in [(1, 9.0), (1, 3.0), (2, 2.0), (10, 1.0)]
    ]
    assert measure(events, CARD.metrics["throughput"], f"epoch-{epoch}") == value


def test_a_metric_may_be_expected_at_several_epochs() -> None:
    wanted = [{**ACCURACY, "at": f"epoch-{epoch}", "value": value, "lower": -0.01}
              for epoch, value in ((1, 50.0), (2, 90.0))]
    events = [event("eval_accuracy", 0.5, epoch_num=1), event("eval_accuracy", 0.8, epoch_num=2)]
    verdict = judge_metrics(recipe(*wanted), CARD, events, changed=[], unlike=[])
    assert [(row.at, row.measured, row.outcome) for row in verdict.rows if row.required] == [
        ("epoch-1", 50.0, "PASS"), ("epoch-2", 80.0, "FAIL"),
    ]


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, 1.01, -0.1, True, "0.95", None]
)
@pytest.mark.parametrize("at", ["end", "best"])
def test_what_is_no_fraction_is_a_failure_and_not_skipped(value: Any, at: str) -> None:
    events = [event("eval_accuracy", 0.95), event("eval_accuracy", value)]
    assert math.isnan(measure(events, CARD.metrics["val_top1"], at) or 0)
    verdict = judge_metrics(recipe({**ACCURACY, "at": at}), CARD, events, changed=[], unlike=[])
    assert verdict.outcome == "FAIL"
    assert verdict.rows[0].measured_text == "not valid"


def test_a_speed_that_is_no_number_is_not_left_out_of_the_median() -> None:
    speeds = [event("throughput", v, epoch_num=2) for v in (1000, math.nan, 1000)]
    verdict = judge_metrics(recipe(SPEED), CARD, speeds, changed=[], unlike=[])
    assert verdict.outcome == "FAIL"


def test_other_data_have_no_reference() -> None:
    events = [event("eval_accuracy", 0.95)]
    verdict = judge_metrics(
        recipe(ACCURACY), CARD, events, changed=[], unlike=[], other_data="other data",
    )
    assert (verdict.outcome, verdict.reasons) == ("NO REFERENCE", ["other data"])


@pytest.mark.parametrize(
    ("accuracy", "outcome"), [(0.9, "PASS"), (0.8911, "PASS"), (0.8909, "FAIL"), (None, "FAIL")]
)
def test_a_value_below_its_bound_or_not_reported_fails(
    accuracy: float | None, outcome: str
) -> None:
    events = [] if accuracy is None else [event("eval_accuracy", accuracy)]
    assert judge_metrics(recipe(ACCURACY), CARD, events, changed=[], unlike=[]).outcome == outcome


@pytest.mark.parametrize(("speed", "outcome"), [
    (899.9, "FAIL"), (900.0, "PASS"), (1000.0, "PASS"), (1500.0, "PASS"), (1500.1, "FAIL"),
])
def test_bounds_belong_to_what_is_accepted(speed: float, outcome: str) -> None:
    """The bounds of a range are accepted, too: 900 and 1500 for 1000 img/s, -10 % to +50 %."""
    events = [event("throughput", speed, epoch_num=2)]
    verdict = judge_metrics(recipe(SPEED), CARD, events, changed=[], unlike=[])
    assert verdict.outcome == outcome
    row = verdict.rows[0]
    assert (row.low, row.high) == (pytest.approx(900), pytest.approx(1500))
    assert (row.measured, row.expected, row.unit) == (speed, 1000.0, "img/s")


def test_without_an_upper_bound_no_value_is_too_good() -> None:
    events = [event("eval_accuracy", 1.0)]
    assert judge_metrics(recipe(ACCURACY), CARD, events, changed=[], unlike=[]).outcome == "PASS"


def test_each_metric_is_read_from_its_own_key_in_its_unit() -> None:
    events = [
        event("eval_accuracy", 0.5, epoch_num=1), event("eval_accuracy_top5", 0.75, epoch_num=1),
        event("throughput", 123.0, epoch_num=1), event("eval_loss", 2.0, epoch_num=1),
        event("train_loss", 3.0, epoch_num=1),
    ]
    found = {name: value for name, metric in CARD.metrics.items()
             if (value := measure(events, metric, "end")) is not None}
    assert found == {"val_top1": 50.0, "val_top5": 75.0, "throughput": 123.0, "val_loss": 2.0,
                     "train_loss": 3.0}


@pytest.mark.parametrize(("values", "middle"), [
    ([5.0], 5.0), ([1.0, 9.0], 5.0), ([100.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 50.0], 3.0),
])
def test_a_median_is_of_all_values_after_the_epoch_and_of_no_other(
    values: list[float], middle: float
) -> None:
    late = [event("throughput", value, epoch_num=2) for value in values]
    early = [event("throughput", 1e6, epoch_num=1)] * 9
    assert measure(early + late, CARD.metrics["throughput"], "median-after-epoch-1") == middle
    assert measure(early, CARD.metrics["throughput"], "median-after-epoch-1") is None


def test_a_missing_metric_fails_whatever_the_machine_does_not_judge() -> None:
    for expected, unlike, outcome in (
        (ACCURACY, [], "FAIL"), (SPEED, [], "FAIL"), (ACCURACY, ["8 cores"], "FAIL"),
        (SPEED, ["8 cores"], "NO REFERENCE"),
    ):
        verdict = judge_metrics(recipe(expected), CARD, [], changed=[], unlike=unlike)
        assert verdict.outcome == outcome


def test_a_failure_counts_more_than_a_missing_reference_and_both_than_a_pass() -> None:
    good, bad = [event("eval_accuracy", 0.95)], [event("eval_accuracy", 0.2)]
    speed = [event("throughput", 1000.0, epoch_num=2)]
    for events, unlike, outcome in (
        (good + speed, [], "PASS"), (good + speed, ["8 cores"], "NO REFERENCE"),
        (bad + speed, ["8 cores"], "FAIL"), (bad + speed, [], "FAIL"),
    ):
        verdict = judge_metrics(recipe(ACCURACY, SPEED), CARD, events, changed=[], unlike=unlike)
        assert verdict.outcome == outcome


def test_each_outcome_has_its_exit_code() -> None:
    assert {outcome: int(code) for outcome, code in EXIT_CODES.items()} == {
        "PASS": 0, "FAIL": 1, "NO REFERENCE": 5,
    }


def test_the_basis_tells_publications_from_measurements() -> None:
    measured = {
        **ACCURACY, "source": None, "measured": {
            "date": "2026-11-01", "host": "a host", "command": "c", "image_digest": None,
            "seeds": {1: 90.0, 2: 90.5},
        },
    }
    rows = [
        judge_metrics(recipe(one), CARD, [], changed=[], unlike=[]).rows[0].basis
        for one in (ACCURACY, measured)
    ]
    assert rows == ["published: a paper", "measured 2026-11-01 on a host, 2 seeds"]


def test_values_are_shown_with_their_unit_and_range() -> None:
    events = [event("eval_accuracy", 0.9123), event("throughput", 1234.5, epoch_num=2)]
    top1, speed = judge_metrics(recipe(ACCURACY, SPEED), CARD, events, changed=[], unlike=[]).rows
    assert (top1.measured_text, top1.accepted_text) == ("91.23 %", ">= 89.10 %")
    assert (speed.measured_text, speed.accepted_text) == ("1,234 img/s", "900 img/s to 1,500 img/s")
    missing = judge_metrics(recipe(ACCURACY), CARD, [], changed=[], unlike=[]).rows[0]
    assert missing.measured_text == "not reported"


ENERGY = {"metric": "energy_per_sample", "unit": "J/sample", "at": "end", "value": 2.0,
          "upper": 0.1, "source": "a paper"}
UNREADABLE = Event(1, "not_readable", "no RAPL counters",
                   {"keys": ["energy_joules", "energy_per_sample"], "step": 9})


@pytest.mark.parametrize(("joules", "outcome"), [(2.19, "PASS"), (2.21, "FAIL"), (0.5, "PASS")])
def test_an_expectation_of_energy_is_judged(joules: float, outcome: str) -> None:
    events = [event("energy_per_sample", joules)]
    verdict = judge_metrics(recipe(ENERGY), CARD, events, changed=[], unlike=[])
    assert (verdict.outcome, verdict.rows[0].readable, verdict.notes) == (outcome, True, [])


@pytest.mark.parametrize(("unlike", "outcome"), [([], "FAIL"), (["8 cores"], "NO REFERENCE")])
def test_energy_that_the_machine_cannot_measure_is_no_pass(
    unlike: list[str], outcome: str
) -> None:
    verdict = judge_metrics(
        recipe(ACCURACY, ENERGY), CARD, [event("eval_accuracy", 0.91), UNREADABLE],
        changed=[], unlike=unlike,
    )
    top1, energy = verdict.rows
    assert (top1.outcome, energy.outcome, verdict.outcome) == ("PASS", outcome, outcome)
    assert (energy.measured_text, energy.readable) == ("not readable", False)
    assert verdict.notes == ["energy_per_sample, energy not readable: no RAPL counters"]


def test_energy_that_no_recipe_expects_fails_nothing_and_is_noted() -> None:
    events = [event("eval_accuracy", 0.91), UNREADABLE]
    verdict = judge_metrics(recipe(ACCURACY), CARD, events, changed=[], unlike=[])
    assert (verdict.outcome, len(verdict.rows), len(verdict.notes)) == ("PASS", 1, 1)


@pytest.mark.parametrize("keys", [None, "energy_per_sample", [["energy_per_sample"]], {}])
def test_a_reason_without_keys_is_none(keys: Any) -> None:
    events = [Event(1, "not_readable", "no RAPL", {"keys": keys})]
    row = judge_metrics(recipe(ENERGY), CARD, events, changed=[], unlike=[]).rows[0]
    assert (row.measured_text, row.outcome) == ("not reported", "FAIL")


def test_throughput_has_no_reference_on_other_hardware_and_says_why() -> None:
    events = [event("eval_accuracy", 0.91), event("throughput", 1, epoch_num=2)]
    verdict = judge_metrics(
        recipe(ACCURACY, SPEED), CARD, events, changed=[], unlike=["8 cores, not 2"],
    )
    assert [row.outcome for row in verdict.rows] == ["PASS", "NO REFERENCE"]
    assert verdict.outcome == "NO REFERENCE"
    assert verdict.reasons == ["this machine is not cpu-2core: 8 cores, not 2"]


def test_accuracy_is_judged_on_any_hardware() -> None:
    events = [event("eval_accuracy", 0.91)]
    verdict = judge_metrics(recipe(ACCURACY), CARD, events, changed=[], unlike=["8 cores"])
    assert verdict.outcome == "PASS"


LOSS = {"metric": "val_loss", "at": "end", "value": 0.5, "upper": 0.1, "source": "a paper"}


@pytest.mark.parametrize(("loss", "outcome"), [
    (0.1, "PASS"), (0.55, "PASS"), (0.5501, "FAIL"), (math.nan, "FAIL"), (None, "FAIL"),
])
def test_a_metric_that_is_better_lower_is_bounded_above(loss: Any, outcome: str) -> None:
    events = [] if loss is None else [event("eval_loss", loss)]
    verdict = judge_metrics(recipe(LOSS), CARD, events, changed=[], unlike=["8 cores"])
    assert verdict.outcome == outcome
    assert verdict.rows[0].accepted_text == "<= 0.5500"


def test_the_best_of_a_metric_that_is_better_lower_is_the_least() -> None:
    events = [event("eval_loss", value) for value in (0.6, 0.4, 0.9)]
    assert measure(events, CARD.metrics["val_loss"], "best") == 0.4


@pytest.mark.parametrize(("reference", "used", "notes"), [
    ("a", "a", []), (None, None, []),
    ("a", "b", ["val_top1: reference measured with image sha256:a, this run used image sha256:b"]),
    ("a", None, ["val_top1: reference measured with image sha256:a, this run used no image"]),
    (None, "b", ["val_top1: reference measured with no image, this run used image sha256:b"]),
])
def test_a_reference_of_another_image_is_told_and_changes_nothing(
    reference: str | None, used: str | None, notes: list[str]
) -> None:
    def digest(letter: str | None) -> str | None:
        return letter and f"sha256:{letter * 64}"

    measured = {
        "date": "2026-11-01", "host": "a host", "command": "c", "image_digest": digest(reference),
        "seeds": {1: 90.0},
    }
    verdict = judge_metrics(
        recipe({**ACCURACY, "source": None, "measured": measured}), CARD,
        [event("eval_accuracy", 0.9)], changed=[], unlike=[], image_digest=digest(used),
    )
    assert verdict.outcome == "PASS"
    assert [n.replace("a" * 64, "a").replace("b" * 64, "b") for n in verdict.notes] == notes


def test_a_published_number_was_measured_with_no_image_of_ours() -> None:
    events = [event("eval_accuracy", 0.9)]
    verdict = judge_metrics(
        recipe(ACCURACY), CARD, events, changed=[], unlike=[], image_digest="sha256:" + "a" * 64
    )
    assert verdict.notes == []


def test_a_changed_recipe_has_no_reference() -> None:
    events = [event("eval_accuracy", 0.2)]
    verdict = judge_metrics(recipe(ACCURACY), CARD, events, changed=["epochs"], unlike=[])
    assert verdict.outcome == "NO REFERENCE"
    assert "epochs" in verdict.reasons[0]


def test_a_recipe_that_nobody_has_measured_shows_and_judges_nothing() -> None:
    events = [event("throughput", 500, epoch_num=2)]
    verdict = judge_metrics(recipe(), CARD, events, changed=[], unlike=[])
    assert verdict.outcome == "NO REFERENCE"
    [reason] = verdict.reasons
    assert "no expectations" in reason
    assert [(row.metric, row.required) for row in verdict.rows] == [("throughput", False)]


def test_one_failure_makes_the_whole_a_failure() -> None:
    events = [event("eval_accuracy", 0.2), event("throughput", 1000, epoch_num=2)]
    verdict = judge_metrics(recipe(SPEED, ACCURACY), CARD, events, changed=[], unlike=[])
    assert [row.outcome for row in verdict.rows][:2] == ["PASS", "FAIL"]
    assert verdict.outcome == "FAIL"


def test_reported_metrics_without_a_number_are_shown_but_not_judged() -> None:
    events = [event("eval_accuracy", 0.9), event("throughput", 500, epoch_num=1)]
    verdict = judge_metrics(recipe(ACCURACY), CARD, events, changed=[], unlike=[])
    assert verdict.outcome == "PASS"
    assert [(row.metric, row.required) for row in verdict.rows] == [
        ("val_top1", True), ("throughput", False),
    ]


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_accuracy_never_turns_pass_into_fail(first: float, second: float) -> None:
    low, high = sorted((first, second))
    outcomes = [
        judge_metrics(
            recipe(ACCURACY), CARD, [event("eval_accuracy", v)], changed=[], unlike=[],
        ).outcome
        for v in (low, high)
    ]
    assert outcomes != ["PASS", "FAIL"]


def test_a_last_line_cut_short_is_left_out_and_any_other_is_named(tmp_path: Path) -> None:
    line = json.dumps({"time_ms": 1, "key": "seed", "value": 3})
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{line}\n{{"time_ms": 1, "ke')
    assert len(read_events(path)) == 2
    path.write_text(f"{line}\nbroken\n{line}\n")
    with refused("metrics-invalid", f"{path}:2: ", kind=RunError):
        read_events(path)
    with refused("metrics-missing", tmp_path / "none", kind=RunError):
        read_events(tmp_path / "none")


@pytest.mark.parametrize("speed", [1, 1000, 10**6])
def test_a_value_that_is_not_judged_is_shown_with_the_reason_and_never_passes(speed: int) -> None:
    margins = {key: value for key, value in SPEED.items() if key not in ("lower", "upper")}
    events = [event("eval_accuracy", 0.91), event("throughput", speed, epoch_num=2)]
    verdict = judge_metrics(
        recipe(ACCURACY, {**margins, "unjudged": "another framework"}), CARD, events,
        changed=[], unlike=[],
    )
    assert [row.outcome for row in verdict.rows] == ["PASS", "NO REFERENCE"]
    assert (verdict.outcome, verdict.rows[1].expected) == ("NO REFERENCE", 1000)
    assert verdict.reasons == ["throughput is not judged: another framework"]
