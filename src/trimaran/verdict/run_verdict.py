"""Judge a run directory: compare its files with each other, then judge the metrics."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from trimaran.errors import ExitCode, UsageError
from trimaran.recipes import targets
from trimaran.recipes.cards import Card
from trimaran.recipes.library import RecipeFile, real_changes
from trimaran.recipes.recipe import Expectation, Recipe
from trimaran.run import run_directory
from trimaran.run.record import RunRecord
from trimaran.run.run_directory import recipe_as_run
from trimaran.verdict import consistency, metrics_log
from trimaran.verdict.metrics_log import BEGINNINGS, Event, measure, not_readable


@dataclass(frozen=True)
class JudgedRun:
    """A completed run whose files agree, and its verdict."""

    directory: Path
    record: RunRecord
    recipe: RecipeFile
    events: Sequence[Event]
    verdict: Verdict


def judge(directory: Path) -> JudgedRun:
    """Return the verdict of the run in `directory`; no file is written.

    Raises:
        UsageError: `directory` is not a run directory, the run has not completed, or its recipe
            was changed after the run.
        RunError: Files of the run are missing, damaged or disagree.
    """
    record = run_directory.load(directory)
    if record.status != "completed":
        raise UsageError(
            f"the run in {directory} is {record.status}, not completed, so it has no verdict",
            code="run-incomplete", hint=f"see the log in {directory / 'log.txt'}",
        )
    recipe = recipe_as_run(directory, record)
    events = metrics_log.read_events(directory / run_directory.METRICS)
    card = recipe.card.card
    checked = consistency.check(directory, record, recipe.recipe, card, events)
    target = targets.load(recipe.recipe.target)
    unlike = [text for host in record.hosts for text in targets.differences(target, host)]
    judged = judge_metrics(
        recipe.recipe,
        card,
        events,
        changed=[
            *real_changes(recipe.recipe, card, record.recipe.changed),
            *(["nodes"] if record.recipe.nodes else []),
        ],
        unlike=list(dict.fromkeys(unlike)),
        site=record.site_changes,
        other_data=consistency.other_data(record),
        image_digest=record.image.digest,
        checked=checked,
    )
    return JudgedRun(directory, record, recipe, events, judged)


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
    """One metric of a verdict; values and bounds are in `unit`, and `at` is as in `measure`.

    `readable` is false if the run reported that the machine cannot measure the metric.
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
    readable: bool = True

    @property
    def measured_text(self) -> str:
        """The measured value with its unit."""
        if self.measured is None:
            return "not reported" if self.readable else "not readable"
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
        return f"{value:,.{self.digits}f} {self.unit}".rstrip()


class Verdict(BaseModel):
    """The verdict of a run.

    Attributes:
        outcome: the worst outcome of the required rows.
        reasons: why no reference is valid for this run.
        notes: circumstances that readers of the outcome must know.
        rows: the metrics that the recipe expects, followed by further reported metrics.
        checked: one line for each comparison of files that preceded the judgement.
    """

    outcome: Outcome
    reasons: list[str]
    notes: list[str] = []
    rows: list[Row]
    checked: list[str] = []


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
) -> Verdict:
    """Judge a finished run.

    Args:
        recipe: the recipe of the run.
        card: the card of its app; it has all metrics that the recipe expects.
        events: the events of the run.
        changed: arguments of the command line that change the experiment.
        unlike: differences between the machine and the recipe's target.
        site: additions of the site file that change the experiment.
        other_data: how the data differ from those of the recipe; None: they do not differ.
        image_digest: digest of the image; None: the run was not in a container.
        checked: one line for each comparison of files that preceded the judgement.
    """
    another = bool(changed or site or other_data)
    rows = [_row(expected, card, events, another, unlike) for expected in recipe.expected]
    reasons = []
    if changed:
        reasons.append(f"the recipe's arguments were changed ({', '.join(changed)})")
    if site:
        reasons.append(f"the site file changes the experiment ({', '.join(site)})")
    if other_data:
        reasons.append(other_data)
    if unlike and any(card.metrics[row.metric].hardware_bound for row in rows):
        reasons.append(f"this machine is not {recipe.target}: {'; '.join(unlike)}")
    if not rows:
        reasons.append("the recipe has no expectations yet, because no result has been measured")
    return Verdict(
        outcome=worst([row.outcome for row in rows]), reasons=reasons,
        notes=[*_other_images(recipe, image_digest), *_ranks(events),
               *_unreadable(recipe, card, events)],
        rows=rows + _extra_rows(recipe, card, events), checked=list(checked),
    )


def _row(
    expected: Expectation, card: Card, events: Sequence[Event], another: bool,
    unlike: Sequence[str],
) -> Row:
    metric = card.metrics[expected.metric]
    low, high = expected.bounds
    measured = measure(events, metric, expected.at)
    outcome: Outcome = "FAIL"
    if another or (unlike and metric.hardware_bound):
        outcome = "NO REFERENCE"
    elif measured is not None and within(measured, low, high):
        outcome = "PASS"
    return Row(
        metric=expected.metric, unit=expected.unit, digits=metric.digits, at=expected.at,
        measured=measured, expected=expected.value, low=low, high=high, basis=_basis(expected),
        outcome=outcome, required=True,
        readable=measured is not None or not_readable(events, metric) is None,
    )


def within(measured: float, low: float | None, high: float | None) -> bool:
    """Return whether a value is within the bounds; a bound that is None does not exist."""
    return (low is None or measured >= low) and (high is None or measured <= high)


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
    """Return rows for metrics that the run reported but the recipe does not expect."""
    judged = {expected.metric for expected in recipe.expected}
    return [
        Row(metric=name, unit=metric.unit, digits=metric.digits, at=metric.shown,
            measured=measured, outcome="NO REFERENCE",
            basis="the recipe states no number", required=False)
        for name, metric in card.metrics.items()
        if metric.shown is not None and name not in judged
        if (measured := measure(events, metric, metric.shown)) is not None
    ]
