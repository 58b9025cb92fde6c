"""Earlier evidence of a recipe: runs of it that were published, and where this one stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.recipes.cards import Card
from trimaran.recipes.command import real_changes
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.report.run_evidence import Machine, RunEvidence
from trimaran.verdict.rules import Row

RESULTS = "site/results"
"""Where evidence lies, in a checkout, in a wheel and in folders of one's own."""

MOST = 12
"""Runs that are shown, the newest."""


@dataclass(frozen=True)
class Earlier:
    """What is published of a recipe.

    Attributes:
        runs: with the arguments of this run, the newest first.
        others: how many had other arguments, or another experiment by their site file.
        faults: files that cannot be read, and why.
    """

    runs: list[RunEvidence]
    others: int
    faults: list[str]


def find(recipe: RecipeFile, changed: Mapping[str, Argument], but: datetime) -> Earlier:
    """Return the evidence of a recipe, of a series of its point.

    `changed` are the arguments of this run that are not the recipe's; it began at `but`, and its
    own evidence is not earlier.
    """
    found, others, faults = [], 0, []
    for path in _files(recipe.name):
        try:
            one = strict.load_json(RunEvidence, path)
        except UsageError as error:
            faults.append(error.message)
            continue
        if one.run.recipe.name != recipe.name or one.run.started == but:
            continue
        # What a site file changed is told by name alone: no two such runs are known to be alike.
        other = one.run.site is not None and bool(one.run.site.changes)
        if not other and _matters(one.run.recipe.changed, recipe) == _matters(changed, recipe):
            found.append(one)
        else:
            others += 1
    found.sort(key=lambda one: one.run.started, reverse=True)
    return Earlier(found, others, faults)


def _files(name: str) -> Iterator[Path]:
    for folder in paths.folders():
        yield from sorted((folder / RESULTS / name.partition("@")[0]).glob("*.json"))


def _matters(changed: Mapping[str, Argument], recipe: RecipeFile) -> dict[str, Argument]:
    real = real_changes(recipe.recipe, recipe.card.card, changed)
    return {key: changed[key] for key in real}


def standing(row: Row, card: Card, host: HostFacts, earlier: Earlier) -> str | None:
    """Return where the value of this run is among the earlier ones; None: there are no two.

    A metric that depends on the hardware is compared on the same kind of machine only.
    """
    bound, here = card.metrics[row.metric].hardware_bound, Machine.of(host).text
    values = [
        other.measured for one in earlier.runs
        if not bound or one.run.host.text == here
        if (other := one.row(row.metric)) is not None and other.at == row.at
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
