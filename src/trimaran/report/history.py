"""Find earlier published runs of a recipe, and compare a run with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.library import RecipeFile, real_changes
from trimaran.report.run_evidence import Machine, RunEvidence
from trimaran.verdict.metrics import Row

RESULTS = "site/results"
"""Path of the evidence folder, relative to a checkout, the package or a user's own folder."""

MOST = 12
"""Maximum number of earlier runs in a report, which shows the newest runs."""


@dataclass(frozen=True)
class Earlier:
    """The published runs of a recipe.

    Attributes:
        runs: runs with the same arguments, the newest first.
        others: number of runs with other arguments, or with changes from a site file.
        faults: one message for each unreadable file.
    """

    runs: list[RunEvidence]
    others: int
    faults: list[str]


def find(recipe: RecipeFile, changed: Mapping[str, Argument], but: datetime) -> Earlier:
    """Return the published runs of the recipe that this run uses, except this run itself.

    If the recipe is one point (size) of a series, such as `app/recipe@4`, only runs of the same
    point are returned.

    Args:
        recipe: the recipe of this run.
        changed: arguments of this run that differ from the arguments of the recipe.
        but: start time of this run, whose own evidence is excluded.
    """
    runs, others, faults = [], 0, []
    for path in _files(recipe.name):
        try:
            one = strict.load_json(RunEvidence, path)
        except UsageError as error:
            faults.append(error.message)
            continue
        if one.run.recipe.name != recipe.name or one.run.started == but:
            continue
        # Evidence has only the names of changes from a site file: their values cannot be compared.
        other = one.run.site is not None and bool(one.run.site.changes)
        if not other and _matters(one.run.recipe.changed, recipe) == _matters(changed, recipe):
            runs.append(one)
        else:
            others += 1
    runs.sort(key=lambda run: run.run.started, reverse=True)
    return Earlier(runs, others, faults)


def _files(name: str) -> Iterator[Path]:
    for folder in paths.folders():
        yield from sorted((folder / RESULTS / name.partition("@")[0]).glob("*.json"))


def _matters(changed: Mapping[str, Argument], recipe: RecipeFile) -> dict[str, Argument]:
    real = real_changes(recipe.recipe, recipe.card.card, changed)
    return {key: changed[key] for key in real}


def standing(row: Row, card: Card, host: HostFacts, earlier: Earlier) -> str | None:
    """Return a sentence that compares a value with earlier runs.

    Return None if there are fewer than two comparable runs.

    A hardware-bound metric is compared only with runs on the same kind of machine.

    Args:
        row: the metric of this run.
        card: the content of the app's `app.yaml`, which states whether a metric is
            hardware-bound.
        host: facts of the machine of this run.
        earlier: the earlier runs.
    """
    bound, here = card.metrics[row.metric].hardware_bound, Machine.of(host).text
    values = [
        other.measured for one in earlier.runs
        if not bound or one.run.host.text == here
        if (other := one.row(row.metric, row.at)) is not None
        if other.measured is not None
    ]
    if len(values) < 2 or row.measured is None:
        return None
    low, high = (row.model_copy(update={"measured": value}).measured_text
                 for value in (min(values), max(values)))
    where = "among" if min(values) <= row.measured <= max(values) else (
        "below" if row.measured < min(values) else "above")
    what = f"{len(values)} earlier runs" + (" on such a machine" if bound else "")
    return f"{row.metric}: {row.measured_text}, {where} those of {what} ({low} to {high})"
