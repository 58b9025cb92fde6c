"""Split the time of a run into parts, from the metrics of the run (apps/README.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimaran.report.page import LONGEST
from trimaran.run.record import RunRecord
from trimaran.verdict.metrics import Event


class Part(NamedTuple):
    """One part of the time of a run: name, seconds, and share of the whole time."""

    name: str
    seconds: float
    share: float


REST = "checkpoints, and all else"
"""Label of the remaining time: the time of the run minus all parts that a metric measures."""


def split(record: RunRecord, events: Sequence[Event]) -> list[Part]:
    """Return the parts of the time of a run; [] if the run has not reported its training time.

    For each interval of steps, the app logs the shares of time in which rank 0 waits. This function
    averages the shares over the intervals. The weight of an interval is its number of steps divided
    by its throughput; this is proportional to its time, because the batch size is constant.
    """
    training = next(
        (event.finite for event in reversed(events) if event.key == "training_seconds"), None
    )
    if training is None or not 0 < training < LONGEST:
        return []
    waited, exchanged = (training * share for share in _shares(events))
    parts = [
        ("computing", max(0.0, training - waited - exchanged)),
        ("waiting for data", waited),
        ("waiting for other ranks", exchanged),
        ("evaluating", sum(_evaluations(events))),
        ("starting: container, packages, data", _start(record, events)),
    ]
    known = sum(seconds for _, seconds in parts)
    seconds = record.seconds or 0.0
    parts.append((REST, max(0.0, seconds - known) if seconds < LONGEST else 0.0))
    whole = sum(seconds for _, seconds in parts)
    return [Part(name, seconds, seconds / whole) for name, seconds in parts]


def _shares(events: Sequence[Event]) -> tuple[float, float]:
    """Return the shares of training time in which rank 0 waited for data and for other ranks."""
    by_step: dict[int, dict[str, float]] = {}
    for event in events:
        step = event.number("step")
        if step is not None and event.finite is not None and event.finite >= 0:
            by_step.setdefault(step, {})[event.key] = event.finite
    whole = data = other = 0.0
    before = 0
    for step, values in by_step.items():
        if values.get("throughput"):
            weight, before = (step - before) / values["throughput"], step
            whole += weight
            data += weight * min(1.0, values.get("data_wait_fraction", 0.0))
            other += weight * min(1.0, values.get("communication_fraction", 0.0))
    return (data / whole, other / whole) if whole > 0 else (0.0, 0.0)


def _evaluations(events: Sequence[Event]) -> Iterator[float]:
    begun: int | None = None
    for event in events:
        if event.key == "eval_start":
            begun = event.time_ms
        elif event.key == "eval_stop" and begun is not None:
            yield max(0.0, (event.time_ms - begun) / 1000)
            begun = None


def _start(record: RunRecord, events: Sequence[Event]) -> float:
    """Return the seconds from the start of the command to the start that the app logged.

    Return 0 if the app has not logged its start (`run_start`), or if the time is negative or
    longer than the run.
    """
    first = next((event.time_ms for event in events if event.key == "run_start"), None)
    seconds = 0.0 if first is None else first / 1000 - record.started.timestamp()
    return seconds if 0 <= seconds <= (record.seconds or 0) else 0.0
