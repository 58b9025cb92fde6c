"""Read the events of a run, compute the values of its metrics, and judge them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel

from trimaran.errors import ExitCode, RunError, unreadable
from trimaran.files import LINES_BYTES, read_plain
from trimaran.parsing import parse_json
from trimaran.recipes.cards import Card, Metric
from trimaran.recipes.expectation import Expectation
from trimaran.recipes.recipe import Recipe
from trimaran.run import carriers
from trimaran.run.carriers import FabricRecord

BEGINNINGS = ("run_start", "resumed_from_step")
"""Keys of events in the metrics log that mark the start of a run, or a resumption.

The metadata of these events contain the number of ranks under the key `ranks`.
"""


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
        """Return the event that `content` describes; `content` is a parsed line of `metrics.jsonl`.

        Raises:
            ValueError: `content` is not an event.
        """
        if isinstance(content, dict):
            time_ms, key = content.get("time_ms"), content.get("key")
            metadata = content.get("metadata", {})
            if type(time_ms) is int and isinstance(key, str) and isinstance(metadata, dict):
                return cls(time_ms, key, content.get("value"), metadata)
        raise ValueError("the line is not an event")

    def number(self, name: str) -> int | None:
        """Return the integer `name` of the metadata, such as `step`; None if it is no integer."""
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
    """Return the value of `metric` in the metric's unit, or None if the run has not reported it.

    The result is NaN if it depends on a value that is not finite or not possible for the metric.

    Args:
        events: the events of the run.
        metric: the metric in the app card.
        at: `end` (the last value), `best` (the largest or smallest value), `epoch-N` (the last
            value of epoch N, counted from 1) or `median-after-epoch-N` (the median of the values of
            epochs N+1 and later).
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
"""Key of an event by which a run reports that it cannot measure some metrics.

The value of the event is the reason. The metadata contain the keys of the metrics in `keys`.
"""

REASON = 500
"""A reason that a run gives for missing metrics is cut to this number of characters."""


def not_readable(events: Sequence[Event], metric: Metric) -> str | None:
    """Return why the run could not measure `metric`, or None if it did not report a reason."""
    for event in reversed(events):
        keys = event.metadata.get("keys")
        if event.key == NOT_READABLE and isinstance(keys, list) and metric.key in keys:
            return f"{event.value}"[:REASON]
    return None


def readings(events: Sequence[Event], metric: Metric, at: str) -> list[float]:
    """Return the logged values from which `measure` computes its result, in the metric's unit.

    A value that is not finite is returned as NaN.
    """
    found = [event for event in events if event.key == metric.key]
    if at.startswith("median-after-epoch-"):
        first = int(at.rsplit("-", 1)[1])
        found = [event for event in found if (event.number("epoch_num") or 0) > first]
    elif at.startswith("epoch-"):
        number = int(at.rsplit("-", 1)[1])
        found = [event for event in found if event.number("epoch_num") == number][-1:]
    elif at == "end":
        found = found[-1:]
    return [math.nan if event.finite is None else event.finite * metric.factor for event in found]


Outcome = Literal["PASS", "FAIL", "NO REFERENCE"]

EXIT_CODES: dict[Outcome, ExitCode] = {
    "PASS": ExitCode.PASS,
    "FAIL": ExitCode.FAIL,
    "NO REFERENCE": ExitCode.NO_REFERENCE,
}


def worst(outcomes: Collection[Outcome]) -> Outcome:
    """Return the worst of `outcomes`; NO REFERENCE if there are none."""
    order: tuple[Outcome, ...] = ("FAIL", "NO REFERENCE", "PASS")
    return next((one for one in order if one in outcomes), "NO REFERENCE")


class Row(BaseModel):
    """One metric of a verdict; values and bounds are in `unit`.

    `at` names the value that counts: `end` (the last value), `best`, `epoch-N` or
    `median-after-epoch-N`.
    `fault` is the reason why the metric fails even with a value within the bounds. `readable` is
    false if the run reported that the machine cannot measure the metric.
    """

    metric: str
    unit: str
    digits: int = 2
    at: str
    measured: float | None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str
    outcome: Outcome
    required: bool
    fault: str | None = None
    readable: bool = True

    @property
    def measured_text(self) -> str:
        """The measured value with its unit."""
        if self.measured is None:
            return "not reported" if self.readable else "not readable"
        return "not valid" if math.isnan(self.measured) else self.text(self.measured)

    @property
    def accepted_text(self) -> str:
        """The accepted range with its unit."""
        if self.low is not None and self.high is not None:
            return f"{self.text(self.low)} to {self.text(self.high)}"
        if self.low is not None:
            return f">= {self.text(self.low)}"
        return f"<= {self.text(self.high)}" if self.high is not None else "-"

    def text(self, value: float) -> str:
        """Return `value` with its unit and the decimal places of the metric."""
        return f"{value:,.{self.digits}f} {self.unit}".rstrip()


class Verdict(BaseModel):
    """The verdict of a run.

    Attributes:
        outcome: the worst outcome of the required rows.
        reasons: why no reference is valid for this run.
        notes: circumstances that readers must consider when they use the outcome.
        rows: the metrics that the recipe expects, followed by further reported metrics.
        checked: one line for each comparison of files that preceded the judgement.
    """

    outcome: Outcome
    reasons: list[str]
    notes: list[str] = []
    rows: list[Row]
    checked: list[str] = []


UNNAMED = ("the site file names no `fabric` of the cluster, so the network between the nodes was"
           " not read from the logs")
"""Note beside the verdict on throughput if the site file does not name the cluster's fabric."""


def judge_metrics(
    recipe: Recipe,
    card: Card,
    events: Sequence[Event],
    *,
    changed: Sequence[str],
    unlike: Sequence[str],
    site: Sequence[str] = (),
    other_data: str | None = None,
    image_digest: str | None = None,
    checked: Sequence[str] = (),
    fabric: FabricRecord | None = None,
    several_nodes: bool = False,
) -> Verdict:
    """Judge a finished run.

    Args:
        recipe: the recipe of the run.
        card: the card of its app; it has all metrics that the recipe expects.
        events: the events of the run.
        changed: arguments of the command line that change the experiment.
        unlike: differences between the machine and the recipe's target.
        site: additions of the site file that change the experiment.
        other_data: how the data differ from the data of the recipe; None: they do not differ.
        image_digest: digest of the image; None: the run was not in a container.
        checked: one line for each comparison of files that preceded the judgement.
        fabric: networks between the nodes that the job used; None if the job had one node, or if
            the site file names no fabric of the cluster.
        several_nodes: whether the run had more than one node.
    """
    slow, unseen = carriers.fault(fabric), carriers.unseen(fabric)
    another = bool(changed or site or other_data)
    incomparable = bool(unlike or unseen)
    rows = [
        _row(expected, card, events, another, incomparable, slow) for expected in recipe.expected
    ]
    depends = any(card.metrics[row.metric].hardware_bound for row in rows)
    unnamed = depends and several_nodes and fabric is None
    hardware = [
        *([f"this machine is not {recipe.target}: {'; '.join(unlike)}"] if unlike else []),
        *([unseen] if unseen else []),
    ]
    return Verdict(
        outcome=worst([row.outcome for row in rows]),
        reasons=[*_other_experiment(changed, site, other_data), *(hardware if depends else []),
                 *_not_judged(recipe)],
        notes=[*_warnings(recipe, rows), *_other_images(recipe, image_digest), *_ranks(events),
               *([slow] if slow else []), *([UNNAMED] if unnamed else []),
               *_unreadable(recipe, card, events)],
        rows=rows + _extra_rows(recipe, card, events), checked=list(checked),
    )


def _other_experiment(
    changed: Sequence[str], site: Sequence[str], other_data: str | None
) -> list[str]:
    """Return the reasons why a run was another experiment than its recipe describes."""
    return [
        *([f"the recipe's arguments were changed ({', '.join(changed)})"] if changed else []),
        *([f"the site file changes the experiment ({', '.join(site)})"] if site else []),
        *([other_data] if other_data else []),
    ]


def _not_judged(recipe: Recipe) -> list[str]:
    """Return why a recipe cannot judge any run, such as that it has no expectations yet."""
    if not recipe.expected:
        return ["the recipe has no expectations yet, because no result has been measured"]
    return [f"{expected.metric} is not judged: {expected.unjudged}"
            for expected in recipe.expected if expected.unjudged is not None]


def _row(
    expected: Expectation, card: Card, events: Sequence[Event], another: bool,
    incomparable: bool, slow: str | None,
) -> Row:
    """Judge one metric.

    Args:
        expected: the expectation of the recipe.
        card: the card of the app.
        events: the events of the run.
        another: whether the run was another experiment than the recipe describes.
        incomparable: whether the machine or its network differs from the target, or is unknown.
        slow: why a hardware-bound metric fails whatever its value is, or None.
    """
    metric = card.metrics[expected.metric]
    low, high = expected.bounds
    measured = measure(events, metric, expected.at)
    fault = slow if metric.hardware_bound else None
    outcome: Outcome = "FAIL"
    if another or expected.unjudged is not None or (incomparable and metric.hardware_bound):
        outcome = "NO REFERENCE"
        fault = None
    elif fault is None and measured is not None and within(measured, low, high):
        outcome = "PASS"
    return Row(
        metric=expected.metric, unit=expected.unit, digits=metric.digits, at=expected.at,
        measured=measured, expected=expected.value, low=low, high=high, basis=_basis(expected),
        outcome=outcome, required=True, fault=fault,
        readable=measured is not None or not_readable(events, metric) is None,
    )


def within(measured: float, low: float | None, high: float | None) -> bool:
    """Return whether a value is within the bounds; None means that there is no bound."""
    return (low is None or measured >= low) and (high is None or measured <= high)


def _warnings(recipe: Recipe, rows: Sequence[Row]) -> list[str]:
    """Return a note for each value that passes, but is below the warning limit of the recipe."""
    return [
        f"warning: {row.metric} is {row.measured_text}, below {row.text(limit)}"
        for expected, row in zip(recipe.expected, rows, strict=True)
        if row.outcome == "PASS" and row.measured is not None
        and (limit := expected.warn_below) is not None and row.measured < limit
    ]


def _other_images(recipe: Recipe, digest: str | None) -> list[str]:
    """Return a note for each reference that was measured with an image other than `digest`."""
    return [
        f"{expected.metric}: reference measured with {_image(expected.measured.image_digest)},"
        f" this run used {_image(digest)}"
        for expected in recipe.expected
        if expected.measured is not None and expected.measured.image_digest != digest
    ]


def _ranks(events: Sequence[Event]) -> list[str]:
    """Return a note for each resumption with another number of ranks than before."""
    begun = [event for event in events if event.key in BEGINNINGS and event.number("ranks")]
    return [
        f"from step {now.number('step')} on {now.number('ranks')} ranks, before"
        f" {before.number('ranks')}"
        for before, now in pairwise(begun)
        if before.number("ranks") != now.number("ranks")
    ]


def _unreadable(recipe: Recipe, card: Card, events: Sequence[Event]) -> list[str]:
    """Return a note for each reason why the run could not measure some metrics of the verdict."""
    judged = {expected.metric for expected in recipe.expected}
    named: dict[str, list[str]] = {}
    for name, metric in card.metrics.items():
        if name in judged or metric.shown is not None:
            reason = not_readable(events, metric)
            if reason is not None:
                named.setdefault(reason, []).append(name)
    return [f"{', '.join(names)} not readable: {reason}" for reason, names in named.items()]


def _image(digest: str | None) -> str:
    return "no image" if digest is None else f"image {digest}"


def _basis(expected: Expectation) -> str:
    if expected.measured is not None:
        seeds = len(expected.measured.seeds)
        return f"measured {expected.measured.date} on {expected.measured.host}, {seeds} seeds"
    return f"published: {expected.source}"


def _extra_rows(recipe: Recipe, card: Card, events: Sequence[Event]) -> list[Row]:
    """Return rows for metrics without an expectation; they do not affect the verdict of the run."""
    judged = {expected.metric for expected in recipe.expected}
    return [
        Row(metric=name, unit=metric.unit, digits=metric.digits, at=metric.shown,
            measured=measured, outcome="NO REFERENCE",
            basis="the recipe states no number", required=False)
        for name, metric in card.metrics.items()
        if metric.shown is not None and name not in judged
        if (measured := measure(events, metric, metric.shown)) is not None
    ]
