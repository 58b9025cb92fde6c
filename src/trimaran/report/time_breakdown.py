"""Where the time of a run went, as far as its metrics tell (app contract, apps/README.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimaran.report.page import LONGEST
from trimaran.run.record import RunRecord
from trimaran.verdict.metrics_log import Event


class Part(NamedTuple):
    """What the run did for so many seconds; `share` of all parts."""

    name: str
    seconds: float
    share: float


REST = "checkpoints, and all else"


def split(record: RunRecord, events: Sequence[Event]) -> list[Part]:
    """Return the parts of the time of a run, none where it does not tell that of its training.

    The shares that rank 0 waited are told for windows of steps. They are averaged over the time
    of the windows, which is that of their steps by their throughput: for one size of batch.
    """
    training = next(
        (event.finite for event in reversed(events) if event.key == "training_seconds"), None
    )
    if training is None or not 0 < training < LONGEST:
        return []
    waited, exchanged = (training * share for share in _shares(events))
    found = [
        ("computing", max(0.0, training - waited - exchanged)),
        ("waiting for data", waited),
        ("waiting for other ranks", exchanged),
        ("evaluating", sum(_evaluations(events))),
        ("starting: container, packages, data", _start(record, events)),
    ]
    told = sum(seconds for _, seconds in found)
    seconds = record.seconds or 0.0
    found.append((REST, max(0.0, seconds - told) if seconds < LONGEST else 0.0))
    whole = sum(seconds for _, seconds in found)
    return [Part(name, seconds, seconds / whole) for name, seconds in found]


def _shares(events: Sequence[Event]) -> tuple[float, float]:
    """Return the shares of the training time that went into waits for data and for gradients."""
    told: dict[int, dict[str, float]] = {}
    for event in events:
        step = event.number("step")
        if step is not None and event.finite is not None and event.finite >= 0:
            told.setdefault(step, {})[event.key] = event.finite
    whole = data = other = 0.0
    before = 0
    for step, values in told.items():
        if values.get("throughput"):
            weight, before = (step - before) / values["throughput"], step
            whole += weight
            data += weight * min(1.0, values.get("data_wait_fraction", 0.0))
            other += weight * min(1.0, values.get("communication_fraction", 0.0))
    return (data / whole, other / whole) if whole > 0 else (0.0, 0.0)


def _evaluations(events: Sequence[Event]) -> Iterator[float]:
    """Yield the seconds of each evaluation that came to its end."""
    begun: int | None = None
    for event in events:
        if event.key == "eval_start":
            begun = event.time_ms
        elif event.key == "eval_stop" and begun is not None:
            yield max(0.0, (event.time_ms - begun) / 1000)
            begun = None


def _start(record: RunRecord, events: Sequence[Event]) -> float:
    """Return the seconds from the command to the first word of the app."""
    first = next((event.time_ms for event in events if event.key == "run_start"), None)
    seconds = 0.0 if first is None else first / 1000 - record.started.timestamp()
    return seconds if 0 <= seconds <= (record.seconds or 0) else 0.0
