"""Read the events in `metrics.jsonl` of a run, and compute the value of a metric from them."""

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
"""Keys of the events at the start and at each resumption; their metadata has the number `ranks`."""


@dataclass(frozen=True)
class Event:
    """One line of `metrics.jsonl`.

    It is a dataclass, because pydantic would be slow for the many thousands of lines of a log.
    """

    time_ms: int
    key: str
    value: object = None
    metadata: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, content: object) -> Event:
        """Return the event in the parsed `content` of a line.

        Raises:
            ValueError: The content is not an event.
        """
        if isinstance(content, dict):
            time_ms, key = content.get("time_ms"), content.get("key")
            metadata = content.get("metadata", {})
            if type(time_ms) is int and isinstance(key, str) and isinstance(metadata, dict):
                return cls(time_ms, key, content.get("value"), metadata)
        raise ValueError("the line is not an event")

    def number(self, name: str) -> int | None:
        """Return an integer of the metadata, such as `step` or `epoch_num`, or None."""
        value = self.metadata.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def finite(self) -> float | None:
        """The value if it is a finite number, else None."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        try:
            value = float(self.value)
        except OverflowError:  # an integer with hundreds of digits
            return None
        return value if math.isfinite(value) else None


def read_events(path: Path) -> list[Event]:
    """Read `metrics.jsonl`; an incomplete last line, such as of a killed run, is ignored.

    Raises:
        RunError: The file is missing or unreadable, or a line other than the last is not an event.
    """
    try:
        lines = read_plain(path, LINES_BYTES).split(b"\n")
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: the run has no metrics", code="metrics-missing",
                       hint="see log.txt in the same folder") from error
    except OSError as error:
        raise unreadable(path, error, RunError) from error
    if not lines[-1]:
        lines.pop()  # the empty text after the last line break
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(Event.of(parse_json(line)))
        except ValueError as error:
            if number == len(lines):
                break
            raise RunError(f"{path}:{number}: the line is not an event: {line[:80]!r}",
                           code="metrics-invalid") from error
    return events


def measure(events: Sequence[Event], metric: Metric, at: str) -> float | None:
    """Return the value of `metric` in its unit; None: the run has not reported it.

    The result is NaN if it depends on a value that is not finite or not possible for the metric.

    Args:
        events: the events of the run.
        metric: the metric in the app card.
        at: `end` (the last value), `best` (the largest or smallest value) or
            `median-after-epoch-N` (the median of the values of epochs N+1 and later).
    """
    values = readings(events, metric, at)
    if not values:
        return None
    if not all(math.isfinite(value) and metric.can_be(value) for value in values):
        return math.nan
    if at.startswith("median"):
        return median(values)
    return max(values) if metric.better == "higher" else min(values)


NOT_READABLE = "not_readable"
"""Key of the event that names the reason why a run cannot measure some metrics.

The metadata have the keys of these metrics in `keys`.
"""


def not_readable(events: Sequence[Event], metric: Metric) -> str | None:
    """Return why the run could not measure `metric`, or None if it did not report a reason."""
    for event in reversed(events):
        keys = event.metadata.get("keys")
        if event.key == NOT_READABLE and isinstance(keys, list) and metric.key in keys:
            return f"{event.value}"[:REASON]
    return None


REASON = 500
"""Maximum number of characters of a reason that is shown."""


def readings(events: Sequence[Event], metric: Metric, at: str) -> list[float]:
    """Return the values that `measure` uses, in their unit; NaN for values that are not finite."""
    found = [event for event in events if event.key == metric.key]
    if at.startswith("median-after-epoch-"):
        first = int(at.rsplit("-", 1)[1])
        found = [event for event in found if (event.number("epoch_num") or 0) > first]
    if at == "end":
        found = found[-1:]
    return [math.nan if event.finite is None else event.finite * metric.factor for event in found]
