"""The metrics of a run: the lines of `metrics.jsonl`, and the value of a metric in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from trimaran.errors import RunError, unreadable
from trimaran.files import LINES_BYTES, read_plain
from trimaran.parsing import parse_json
from trimaran.recipes.cards import Metric

BEGINNINGS = ("run_start", "resumed_from_step")
"""Keys by which an app tells that it begins or goes on; their `ranks` say with how many."""


@dataclass(frozen=True)
class Event:
    """One line of `metrics.jsonl`; there are thousands, so it is no model."""

    time_ms: int
    key: str
    value: object = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, content: object) -> Event:
        """Return the event that a line holds.

        Raises:
            ValueError: it holds something else.
        """
        if isinstance(content, dict):
            time_ms, key = content.get("time_ms"), content.get("key")
            metadata = content.get("metadata", {})
            if type(time_ms) is int and isinstance(key, str) and isinstance(metadata, dict):
                return cls(time_ms, key, content.get("value"), metadata)
        raise ValueError("no event")

    def number(self, name: str) -> int | None:
        """Return an integer of the metadata (`step`, `epoch_num`), if it is there."""
        value = self.metadata.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def finite(self) -> float | None:
        """The value, if it is a finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        try:
            value = float(self.value)
        except OverflowError:  # a whole number of hundreds of digits
            return None
        return value if math.isfinite(value) else None


def read_events(path: Path) -> list[Event]:
    """Read `metrics.jsonl`; a last line cut short by a killed run is left out.

    Raises:
        RunError: the file is missing or a line other than the last is no event.
    """
    try:
        lines = read_plain(path, LINES_BYTES).split(b"\n")
    except FileNotFoundError as error:
        raise RunError(f"no metrics: {path} is missing", hint="see log.txt beside it") from error
    except OSError as error:
        raise unreadable(path, error, RunError) from error
    if not lines[-1]:
        lines.pop()  # after the last line's end
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(Event.of(parse_json(line)))
        except ValueError as error:
            if number == len(lines):
                break
            raise RunError(f"{path}:{number}: not a metric: {line[:80]!r}") from error
    return events


def measure(events: Sequence[Event], metric: Metric, at: str) -> float | None:
    """Return `metric` of a run in its unit, or None if the run did not report it.

    It is NaN where a value that counts is no finite number or one that the metric cannot be.
    `at` is `end` (last value), `best` (largest or least) or `median-after-epoch-N` (median of the
    values of epochs N+1 and later).
    """
    values = readings(events, metric, at)
    if not values:
        return None
    if not all(math.isfinite(value) and metric.can_be(value) for value in values):
        return math.nan
    if at.startswith("median"):
        return median(values)
    return max(values) if metric.better == "higher" else min(values)


def readings(events: Sequence[Event], metric: Metric, at: str) -> list[float]:
    """Return the values in the unit that `measure` looks at; NaN for what is no finite number."""
    found = [event for event in events if event.key == metric.key]
    if at.startswith("median-after-epoch-"):
        first = int(at.rsplit("-", 1)[1])
        found = [event for event in found if (event.number("epoch_num") or 0) > first]
    if at == "end":
        found = found[-1:]
    return [math.nan if event.finite is None else event.finite * metric.factor for event in found]
