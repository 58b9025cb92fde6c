"""How a recipe stands: what it expects, where each number is from, and what runs came to."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.evidence.store import Piece, Shelf
from trimaran.parsing import Location
from trimaran.recipes import cards, library, targets
from trimaran.recipes.cards import Card
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Expectation
from trimaran.recipes.targets import Target
from trimaran.report.run_evidence import RunEvidence
from trimaran.strict import Sha256

Status = Literal["reproduced", "measured", "published", "open"]

STATUS: dict[Status, str] = {
    "reproduced": "a run came to the number that the recipe expected: verdict PASS in evidence",
    "measured": "its number was measured here, or runs are in evidence; none has met it since",
    "published": "its number is from a publication; it was not run here",
    "open": "no number yet: nobody has measured it",
}

_YEAR = re.compile(r"\b((?:19|20)\d\d)\b|arXiv:(\d\d)\d\d\.")
"""A year, or the number of a paper at arXiv, which begins with year and month."""


@dataclass(frozen=True)
class Number:
    """One number that a run must reach, with its date and its source.

    Attributes:
        expected: as the recipe has it.
        text: value and unit.
        accepted: the range that passes.
        source: publication with its year, or the machine of our own measurement.
        date: the day of our own measurement; None: it is published.
        year: that of the publication or the measurement.
    """

    expected: Expectation
    text: str
    accepted: str
    source: str
    date: dt.date | None
    year: int

    @property
    def cited(self) -> str:
        """The source with its date."""
        return self.source if self.date is None else f"{self.source}, {self.date}"


@dataclass(frozen=True)
class Standing:
    """A recipe that can be run, of a series one of its points.

    Attributes:
        file: the recipe, with its name, file and hash.
        target: its hardware.
        point: of a series, its number.
        numbers: what it expects.
        runs: evidence, the newest first.
        others: hashes of earlier wordings that were another experiment, and what differed.
    """

    file: RecipeFile
    target: Target
    point: int | None
    numbers: Sequence[Number]
    runs: Sequence[Piece[RunEvidence]]
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name: `app/recipe`, or `app/recipe@4`."""
        return self.file.name

    @property
    def status(self) -> Status:
        """The most that is known of it."""
        if any(piece.content.verdict.outcome == "PASS" for piece in self.own_runs()):
            return "reproduced"
        if self.runs or any(number.date for number in self.numbers):
            return "measured"
        return "published" if self.numbers else "open"

    def own_runs(self) -> list[Piece[RunEvidence]]:
        """Return the evidence of the recipe as it stands: nothing changed but what is neutral."""
        return [piece for piece in self.runs if not self.changes(piece)]

    def changes(self, piece: Piece[RunEvidence]) -> dict[str, str]:
        """Return what made a run another experiment than the recipe: arguments and their values.

        What an earlier wording of the recipe had otherwise is `wording`.
        """
        used, neutral = piece.content.run.recipe, self.file.card.card.neutral_options
        found = {key: str(value) for key, value in used.changed.items() if key not in neutral}
        if used.sha256 in self.others:
            found["wording"] = self.others[used.sha256]
        return found

    @property
    def starts_here(self) -> bool:
        """Whether `trimaran run` starts it: the tasks of one node, without a batch system."""
        recipe = self.file.recipe
        return recipe.resources.nodes == 1 and recipe.launcher != "srun"

    @property
    def ranks(self) -> int:
        """How many ranks it starts, each on a device or on cores of its own."""
        wanted = self.file.recipe.resources
        return wanted.nodes * wanted.tasks_per_node

    @property
    def hardware(self) -> str:
        """What a filter knows its target by: the accelerator, else the processor."""
        return self.target.node.accelerator or "CPU"


def all_of(shelf: Shelf) -> list[Standing]:
    """Return every recipe of the checkout, and every point of every series, by name.

    Raises:
        UsageError: a recipe does not validate, a number has no year, or evidence is of no recipe.
    """
    found = [one for name in library.names() for one in _of(name, shelf)]
    lost = set(shelf.runs) - {one.name for one in found}
    if lost:
        piece = shelf.runs[min(lost)][0]
        raise UsageError(f"{piece.path}:1: run.recipe.name: there is no recipe {min(lost)}")
    return found


def _of(name: str, shelf: Shelf) -> Iterator[Standing]:
    recipe, path = library.definition(name), library.files()[name]
    others = _other_wordings().get(name, {})
    _refuse_undated(path, recipe.expectations())
    loaded = cards.load(recipe.app)
    for point, whole in recipe.variants():
        full = name if point is None else f"{name}@{point}"
        file = library.load_copy(path, full, loaded)
        yield Standing(
            file, targets.load(whole.target), point,
            [_number(expected, loaded.card) for expected in whole.expected],
            shelf.runs.get(full, []), others,
        )


class Wordings(strict.Model):
    """`site/wordings.yaml`: recipe -> SHA-256 of its file then -> what differed."""

    schema_: Literal[1] = Field(alias="schema")
    other: dict[str, dict[Sha256, Annotated[str, Field(min_length=1)]]]


def _other_wordings() -> Mapping[str, Mapping[str, str]]:
    """Return earlier wordings of recipes that were another experiment; nothing without the file."""
    path = paths.repository() / "site/wordings.yaml"
    return strict.load(Wordings, path).other if path.is_file() else {}


def year_of(source: str) -> int | None:
    """Return the year that a source names, the latest of several; None: it names none."""
    years = [int(year or f"20{short}") for year, short in _YEAR.findall(source)]
    return max(years, default=None)


def _refuse_undated(path: Path, expectations: Iterator[tuple[Location, Expectation]]) -> None:
    """Refuse a published number without the year of its source: nobody could judge its age."""
    faults: dict[Location, str] = {
        (*at, "source"): f"has no year ({one.source})"
        for at, one in expectations if one.source is not None and year_of(one.source) is None
    }
    strict.refuse(path, faults, hint="name the year: a page shows no number without")


def _number(expected: Expectation, known: Card) -> Number:
    digits = known.metrics[expected.metric].digits
    low, high = expected.bounds
    text = f"{expected.value:,.10g} {expected.unit}".rstrip()
    if low is not None and high is not None:
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
    if str(year) not in source:  # the number of a paper has it in another form
        source += f" ({year})"
    return Number(expected, text, accepted, source, None, year)


def show(value: float, unit: str, digits: int) -> str:
    """Return a value as people write it, with its unit."""
    return f"{value:,.{digits}f} {unit}".rstrip()


def relative(path: Path) -> str:
    """Return where a file of the checkout lies, as pages name it."""
    return str(path.relative_to(paths.repository()))
