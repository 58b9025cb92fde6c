"""From the metrics of a run to one verdict: PASS, FAIL or NO REFERENCE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel

from trimaran.errors import ExitCode, RunError, way_out
from trimaran.files import read_plain
from trimaran.parsing import parse_json
from trimaran.recipes.recipe import HARDWARE_BOUND, METRIC_UNITS, UNIT_LIMITS, Expectation, Recipe

Outcome = Literal["PASS", "FAIL", "NO REFERENCE"]

EXIT_CODES: dict[Outcome, ExitCode] = {
    "PASS": ExitCode.PASS,
    "FAIL": ExitCode.FAIL,
    "NO REFERENCE": ExitCode.NO_REFERENCE,
}

# Metric of a recipe -> key of the MLPerf logging form and the factor to the recipe's unit.
_KEYS = {
    "val_top1": ("eval_accuracy", 100.0),
    "val_top5": ("eval_accuracy_top5", 100.0),
    "throughput": ("throughput", 1.0),
}


class Event(BaseModel):
    """One line of `metrics.jsonl`."""

    time_ms: int
    key: str
    value: float | int | str | bool | list[object] | dict[str, object] | None = None
    metadata: dict[str, object] = {}

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


class Row(BaseModel):
    """One metric of a verdict. Values and bounds are in `unit`; see `measure`."""

    metric: str
    unit: str
    at: str
    measured: float | None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str
    outcome: Outcome
    required: bool

    @property
    def measured_text(self) -> str:
        """The measured value with its unit."""
        if self.measured is None:
            return "not reported"
        return "not valid" if math.isnan(self.measured) else self._text(self.measured)

    @property
    def accepted_text(self) -> str:
        """The accepted range with its unit."""
        if self.low is not None and self.high is not None:
            return f"{self._text(self.low)} to {self._text(self.high)}"
        if self.low is not None:
            return f">= {self._text(self.low)}"
        return f"<= {self._text(self.high)}" if self.high is not None else "-"

    def _text(self, value: float) -> str:
        return f"{value:,.0f} {self.unit}" if self.unit == "img/s" else f"{value:.2f} {self.unit}"


class Verdict(BaseModel):
    """The verdict of a run: one outcome, its reasons, a row per metric, and what was compared."""

    outcome: Outcome
    reasons: list[str]
    rows: list[Row]
    checked: list[str] = []


def read_events(path: Path) -> list[Event]:
    """Read `metrics.jsonl`; a last line cut short by a killed run is left out.

    Raises:
        RunError: the file is missing or a line other than the last is no event.
    """
    try:
        lines = read_plain(path).split(b"\n")
    except FileNotFoundError as error:
        raise RunError(f"no metrics: {path} is missing", hint="see log.txt beside it") from error
    except OSError as error:
        raise RunError(
            f"cannot read {path}: {error.strerror}", hint=way_out(error)
        ) from error
    if not lines[-1]:
        lines.pop()  # after the last line's end
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(Event.model_validate(parse_json(line)))
        except ValueError as error:
            if number == len(lines):
                break
            raise RunError(f"{path}:{number}: not a metric: {line[:80]!r}") from error
    return events


def measure(events: Sequence[Event], metric: str, at: str) -> float | None:
    """Return `metric` of a run in the recipe's unit, or None if the run did not report it.

    It is NaN where a value that counts is no finite number or one that the metric cannot be.

    Args:
        events: the lines of `metrics.jsonl`, in order.
        metric: a key of `METRIC_UNITS`.
        at: `end` (last value), `best` (largest) or `median-after-epoch-N`
            (median of the values of epochs N+1 and later).
    """
    key, factor = _KEYS[metric]
    found = [event for event in events if event.key == key]
    if at.startswith("median-after-epoch-"):
        first = int(at.rsplit("-", 1)[1])
        found = [event for event in found if (event.number("epoch_num") or 0) > first]
    if at == "end":
        found = found[-1:]
    values = [math.nan if event.finite is None else event.finite * factor for event in found]
    if not values:
        return None
    lowest, highest = UNIT_LIMITS[METRIC_UNITS[metric]]
    if not all(lowest <= value <= highest for value in values):
        return math.nan
    return median(values) if at.startswith("median") else max(values)


def judge(
    recipe: Recipe,
    events: Sequence[Event],
    *,
    changed: Sequence[str],
    unlike: Sequence[str],
    other_data: str | None = None,
    checked: Sequence[str] = (),
) -> Verdict:
    """Judge a finished run.

    Args:
        recipe: the recipe that was run.
        events: its metrics.
        changed: arguments changed on the command line that make it another experiment.
        unlike: what makes the host another machine than the recipe's target.
        other_data: what makes the data others than those of the recipe.
        checked: what was compared before, for the reader.
    """
    another = bool(changed or other_data)
    rows = [_row(expected, events, another, unlike) for expected in recipe.expected]
    reasons = []
    if changed:
        reasons.append(f"the recipe's arguments were changed ({', '.join(changed)})")
    if other_data:
        reasons.append(other_data)
    if unlike and any(row.metric in HARDWARE_BOUND for row in rows):
        reasons.append(f"this machine is not {recipe.target}: {'; '.join(unlike)}")
    outcomes = {row.outcome for row in rows}
    outcome: Outcome = "PASS"
    if "FAIL" in outcomes:
        outcome = "FAIL"
    elif "NO REFERENCE" in outcomes:
        outcome = "NO REFERENCE"
    return Verdict(
        outcome=outcome, reasons=reasons, rows=rows + _extra_rows(recipe, events),
        checked=list(checked),
    )


def _row(
    expected: Expectation, events: Sequence[Event], another: bool, unlike: Sequence[str]
) -> Row:
    low, high = expected.bounds
    measured = measure(events, expected.metric, expected.at)
    outcome: Outcome = "FAIL"
    if another or (unlike and expected.metric in HARDWARE_BOUND):
        outcome = "NO REFERENCE"
    elif measured is not None and low <= measured <= (math.inf if high is None else high):
        outcome = "PASS"
    return Row(
        metric=expected.metric, unit=expected.unit, at=expected.at, measured=measured,
        expected=expected.value, low=low, high=high, basis=_basis(expected), outcome=outcome,
        required=True,
    )


def _basis(expected: Expectation) -> str:
    if expected.measured is not None:
        seeds = len(expected.measured.seeds)
        return f"measured {expected.measured.date} on {expected.measured.host}, {seeds} seeds"
    return f"published: {expected.source}"


def _extra_rows(recipe: Recipe, events: Sequence[Event]) -> list[Row]:
    """Metrics that the run reported and the recipe has no number for: shown, not judged."""
    judged = {expected.metric for expected in recipe.expected}
    rows = []
    for metric, unit in METRIC_UNITS.items():
        at = "median-after-epoch-0" if metric == "throughput" else "end"
        measured = measure(events, metric, at)
        if metric not in judged and measured is not None:
            rows.append(
                Row(
                    metric=metric, unit=unit, at=at, measured=measured, outcome="NO REFERENCE",
                    basis="the recipe states no number", required=False,
                )
            )
    return rows
