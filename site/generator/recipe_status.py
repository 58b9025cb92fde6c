"""Determine the status of each recipe from its expectations, their sources, and its evidence."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from generator.evidence import AllEvidence, Piece
from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.parsing import Location
from trimaran.recipes import cards, library, targets
from trimaran.recipes.cards import Card
from trimaran.recipes.expectation import Expectation
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.targets import Target
from trimaran.report.run_evidence import RunEvidence
from trimaran.strict import Sha256

Status = Literal["reproduced", "measured", "published", "open"]

STATUS: dict[Status, str] = {
    "reproduced": "evidence has a run with the verdict PASS: it met the expected values",
    "measured": "the expected values were measured by us, or runs exist; none of them is a PASS",
    "published": "the expected values are from a publication; we have not run the recipe",
    "open": "no expected values yet: nobody has measured them",
}
"""Status of a recipe -> meaning of the status."""

_YEAR = re.compile(r"\b((?:19|20)\d\d)\b|arXiv:(\d\d)\d\d\.")
"""Matches a year, or an arXiv identifier, whose first four digits are year and month."""


@dataclass(frozen=True)
class Number:
    """One number that a run must reach, with its source and date.

    Attributes:
        expected: the expectation in the recipe.
        text: value and unit.
        accepted: the range of values that pass.
        source: publication with its year, or the machine of our own measurement.
        date: day of our own measurement; None for a published number.
        year: year of the publication or the measurement.
    """

    expected: Expectation
    text: str
    accepted: str
    source: str
    date: dt.date | None
    year: int

    @property
    def cited(self) -> str:
        """The source of the published value, followed by the date of the source if it is known."""
        return self.source if self.date is None else f"{self.source}, {self.date}"


@dataclass(frozen=True)
class RecipeStatus:
    """A recipe, or one point (the run of one size) of a scaling series, with its evidence.

    Attributes:
        file: the recipe, with its name, file and hash.
        target: the hardware of the recipe.
        point: size of the point, such as 4 ranks; None if the recipe is not a series.
        numbers: the expected values.
        runs: evidence, the newest first.
        others: earlier versions of the recipe file that describe another experiment: SHA-256 of
            the file -> text about the difference from the current recipe.
    """

    file: RecipeFile
    target: Target
    point: int | None
    numbers: Sequence[Number]
    runs: Sequence[Piece[RunEvidence]]
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name: `app/recipe`, or `app/recipe@4` for the size 4 of a scaling series."""
        return self.file.name

    @property
    def status(self) -> Status:
        """The status: the strongest statement that the evidence supports."""
        if any(piece.content.verdict.outcome == "PASS" for piece in self.own_runs()):
            return "reproduced"
        if self.runs or any(number.date for number in self.numbers):
            return "measured"
        return "published" if self.numbers else "open"

    def own_runs(self) -> list[Piece[RunEvidence]]:
        """Return the evidence of runs of the unchanged recipe.

        Options that do not change the experiment (`neutral_options` of the app card) may have
        other values than in the recipe.
        """
        return [piece for piece in self.runs if not self.changes(piece)]

    def changes(self, piece: Piece[RunEvidence]) -> dict[str, str]:
        """Return the arguments with which a run differs from the recipe, and their values.

        If the run used an earlier recipe file in `others`, the value of the key `wording` describes
        how that file differs from the current recipe.
        """
        used, neutral = piece.content.run.recipe, self.file.card.card.neutral_options
        changed = {key: str(value) for key, value in used.changed.items() if key not in neutral}
        if used.sha256 in self.others:
            changed["wording"] = self.others[used.sha256]
        return changed

    @property
    def starts_here(self) -> bool:
        """Whether `trimaran run` can start the recipe: one node, and a launcher other than srun."""
        recipe = self.file.recipe
        return recipe.resources.nodes == 1 and recipe.launcher != "srun"

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        wanted = self.file.recipe.resources
        return wanted.nodes * wanted.tasks_per_node

    @property
    def devices(self) -> int:
        """The number of devices that compute: GPUs if a rank has several GPUs, otherwise ranks."""
        wanted = self.file.recipe.resources
        return wanted.nodes * wanted.devices_per_node

    @property
    def hardware(self) -> str:
        """The hardware by which readers filter recipes: name of the accelerator, or `CPU`."""
        return self.target.node.accelerator or "CPU"


def all_of(shelf: AllEvidence) -> list[RecipeStatus]:
    """Return the status of every recipe, and of every point of every series, sorted by name.

    A point is the run of one size of a scaling series.

    Raises:
        UsageError: a recipe is invalid, the source of an expected value does not name a year, or
            evidence names an unknown recipe.
    """
    standings = [standing for name in library.names() for standing in _of(name, shelf)]
    lost = set(shelf.runs) - {standing.name for standing in standings}
    if lost:
        piece = shelf.runs[min(lost)][0]
        raise UsageError(f"{piece.path}:1: run.recipe.name: no recipe is called {min(lost)}",
                         code="evidence-invalid",
                         hint="remove the evidence, or restore its recipe")
    return standings


def _of(name: str, shelf: AllEvidence) -> Iterator[RecipeStatus]:
    recipe, path = library.definition(name), library.files()[name]
    others = _other_wordings().get(name, {})
    _refuse_undated(path, recipe.expectations())
    loaded = cards.load(recipe.app)
    for point, whole in recipe.variants():
        full = name if point is None else f"{name}@{point}"
        file = library.load_copy(path, full, loaded)
        yield RecipeStatus(
            file, targets.load(whole.target), point,
            [_number(expected, loaded.card) for expected in whole.expected],
            shelf.runs.get(full, []), others,
        )


class Wordings(strict.Model):
    """The content of `site/wordings.yaml`.

    It is a mapping: recipe -> SHA-256 of an earlier recipe file -> description of the difference.
    """

    schema_: Literal[1] = Field(alias="schema")
    other: dict[str, dict[Sha256, Annotated[str, Field(min_length=1)]]]


def _other_wordings() -> Mapping[str, Mapping[str, str]]:
    """Return the known earlier versions of recipes from `site/wordings.yaml` (`Wordings.other`).

    The result is empty if this file does not exist.
    """
    path = paths.repository() / "site/wordings.yaml"
    return strict.load(Wordings, path).other if path.is_file() else {}


def year_of(source: str) -> int | None:
    """Return the latest year that a source names; None if it names none."""
    years = [int(year or f"20{short}") for year, short in _YEAR.findall(source)]
    return max(years, default=None)


def _refuse_undated(path: Path, expectations: Iterator[tuple[Location, Expectation]]) -> None:
    """Check that the source of each published value names a year.

    Raises:
        UsageError: a source does not name a year.
    """
    faults: dict[Location, str] = {
        (*at, "source"): f"has no year ({one.source})"
        for at, one in expectations if one.source is not None and year_of(one.source) is None
    }
    strict.refuse(path, faults, hint="add the year of the publication to the source")


def _number(expected: Expectation, known: Card) -> Number:
    digits = known.metrics[expected.metric].digits
    low, high = expected.bounds
    text = f"{expected.value:,.10g} {expected.unit}".rstrip()
    if expected.unjudged is not None:
        accepted = f"not judged: {expected.unjudged}"
    elif low is not None and high is not None:
        accepted = f"{show(low, '', digits)} to {show(high, expected.unit, digits)}"
    elif low is not None:
        accepted = f"at least {show(low, expected.unit, digits)}"
    else:
        accepted = f"at most {show(high or 0, expected.unit, digits)}"
    if expected.measured is not None:
        own = expected.measured
        return Number(expected, text, accepted, f"measured on {own.host}", own.date, own.date.year)
    source = str(expected.source)
    year = year_of(source) or 0
    if str(year) not in source:  # the year is part of an arXiv identifier
        source += f" ({year})"
    return Number(expected, text, accepted, source, None, year)


def show(value: float, unit: str, digits: int) -> str:
    """Return a value with thousands separators, `digits` decimals and its unit."""
    return f"{value:,.{digits}f} {unit}".rstrip()


def relative(path: Path) -> str:
    """Return the path of a file relative to the checkout."""
    return str(path.relative_to(paths.repository()))
