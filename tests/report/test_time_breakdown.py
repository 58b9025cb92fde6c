"""Tests of a run's time breakdown: reported times, averages weighted by time, and the rest."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from finished import start
from trimaran.recipes.library import RecipeFile
from trimaran.report.time_breakdown import REST, split
from trimaran.run.record import RunRecord
from trimaran.verdict.metrics import Event

BEGUN = 1_000_000


@pytest.fixture
def record(recipe: RecipeFile, own_place: Path) -> RunRecord:
    """Return the record of a run of 100 s that began at second `BEGUN`."""
    started = datetime.fromtimestamp(BEGUN, timezone.utc)
    return start(own_place / "run", recipe).model_copy(
        update={"started": started, "seconds": 100.0}
    )


def event(second: float, key: str, value: Any = None, step: int | None = None) -> Event:
    metadata = {} if step is None else {"step": step}
    return Event(round((BEGUN + second) * 1000), key, value, metadata)


def window(second: float, step: int, speed: float, waited: float, sent: float) -> list[Event]:
    return [event(second, "throughput", speed, step),
            event(second, "data_wait_fraction", waited, step),
            event(second, "communication_fraction", sent, step)]


def parts(record: RunRecord, events: list[Event]) -> dict[str, float]:
    return {part.name: round(part.seconds, 3) for part in split(record, events)}


def test_all_parts_make_the_whole(record: RunRecord) -> None:
    found = split(record, [
        event(5, "run_start"), *window(50, 10, 100.0, 0.1, 0.2), event(50, "eval_start"),
        event(58, "eval_stop"), event(60, "training_seconds", 80.0),
    ])
    assert {part.name: round(part.seconds, 3) for part in found} == {
        "starting: container, packages, data": 5.0, "computing": 56.0, "waiting for data": 8.0,
        "waiting for other ranks": 16.0, "evaluating": 8.0, REST: 7.0,
    }
    assert sum(part.seconds for part in found) == pytest.approx(100)
    assert sum(part.share for part in found) == pytest.approx(1)


def test_windows_count_by_their_time_not_by_their_number(record: RunRecord) -> None:
    """A share is weighted by the time of a logging interval: waiting for data takes 10 of 11 s.

    Ten steps at 100 img/s only wait, and ten steps at 1000 img/s do not wait.
    """
    events = [*window(1, 10, 100.0, 1.0, 0.0), *window(2, 20, 1000.0, 0.0, 0.0),
              event(3, "training_seconds", 11.0)]
    assert parts(record, events)["waiting for data"] == 10.0


def test_a_run_that_does_not_tell_its_training_time_has_no_parts(record: RunRecord) -> None:
    assert split(record, window(1, 10, 100.0, 0.5, 0.0)) == []
    assert split(record, [event(1, "training_seconds", None)]) == []


def test_what_cannot_be_does_no_harm(record: RunRecord) -> None:
    """Impossible values cause no negative time, and no share of the run above 1.

    Cases: different clocks, an unfinished evaluation, shares above 1, times longer than the run.
    """
    events = [event(-50, "run_start"), event(1, "eval_start"), *window(1, 10, 0.0, 9.0, -1.0),
              *window(2, 20, 10.0, 9.0, 9.0), event(3, "eval_stop"), event(2, "eval_stop"),
              event(3, "training_seconds", 200.0)]
    found = split(record, events)
    assert all(part.seconds >= 0 and 0 <= part.share <= 1 for part in found)
    assert parts(record, events)[REST] == 0


WINDOWS = [(10, 2.0, 0.5, 0.25), (2, 9.0, 1.0, 2.0), (1, 0.5, 0.0, 0.25), (30, 1.0, 0.25, 0.5)]
"""Logging intervals: number of steps, then three times of each step in seconds.

The times are the whole step, the wait for data, and the wait for other ranks.
"""


def test_the_parts_are_those_of_a_run_of_unequal_windows_added_up_by_step(
    record: RunRecord
) -> None:
    """The breakdown equals sums over single steps, for logging intervals of different length.

    All steps have 64 images; there are three evaluations of 1, 2.5 and 6 s.
    """
    events = [event(4, "run_start")]
    second, step = 4.0, 0
    for count, seconds, data, ranks in WINDOWS:
        second, step = second + count * seconds, step + count
        events += window(second, step, 64 / seconds, data / seconds, ranks / seconds)
    for took in (1.0, 2.5, 6.0):
        events += [event(second, "eval_start"), event(second + took, "eval_stop")]
        second += took
    steps = [times for count, *times in WINDOWS for _ in range(count)]
    whole, data, ranks = (sum(times[at] for times in steps) for at in range(3))
    events += [event(second, "training_seconds", 1.0), event(second, "training_seconds", whole)]
    found = parts(record, events)
    assert found == {
        "computing": pytest.approx(whole - data - ranks, abs=0.01),
        "waiting for data": pytest.approx(data, abs=0.01),
        "waiting for other ranks": pytest.approx(ranks, abs=0.01),
        "evaluating": 9.5, "starting: container, packages, data": 4.0,
        REST: pytest.approx(100 - whole - 9.5 - 4, abs=0.01),
    }
    assert {part.name: part.share for part in split(record, events)} == {
        name: pytest.approx(seconds / 100, abs=1e-3) for name, seconds in found.items()
    }


def test_an_evaluation_that_was_cut_is_none_and_the_next_begins_anew(record: RunRecord) -> None:
    events = [event(0, "run_start"), event(10, "eval_start"), event(30, "eval_start"),
              event(33, "eval_stop"), event(40, "training_seconds", 5.0)]
    assert parts(record, events)["evaluating"] == 3.0


def test_what_a_window_says_twice_counts_as_said_last(record: RunRecord) -> None:
    """If the same step is reported twice with different values, the second report counts."""
    events = [*window(1, 10, 100.0, 1.0, 0.0), *window(2, 10, 100.0, 0.25, 0.5),
              event(3, "training_seconds", 8.0)]
    found = parts(record, events)
    assert (found["waiting for data"], found["waiting for other ranks"]) == (2.0, 4.0)
