"""Cards: what an app says of itself in `apps/<app>/app.yaml`, and all that the tool knows of it.

A metric, its unit and its direction, a verb, a kind of data: none of them is in the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shards.kinds import SampleWord
from trimaran import paths, strict
from trimaran.errors import UsageError, nearest
from trimaran.files import sha256
from trimaran.parsing import Location
from trimaran.recipes import options

CARD = "app.yaml"

Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
Key = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,100}$")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
When = Annotated[str, Field(pattern=r"^(end|best|median-after-epoch-\d{1,6})$")]

AxisKind = Literal["plain", "log", "from-zero"]


class Metric(strict.Model):
    """One number that a run of the app reports, and what it means."""

    key: Key = Field(description="its key in metrics.jsonl")
    unit: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f|]{0,16}$")] = ""
    factor: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="from the value in metrics.jsonl to the unit"
    )
    better: Literal["higher", "lower"]
    digits: Annotated[int, Field(ge=0, le=9)] = Field(
        default=2, description="decimal places that are shown"
    )
    hardware_bound: bool = Field(
        default=False,
        description="its reference holds only on the recipe's own target; the first such metric"
        " that is the better the higher is the rate that a scaling series is about",
    )
    least: Number | None = Field(default=None, description="the least it can be, in the unit")
    most: Number | None = Field(default=None, description="the most it can be, in the unit")
    shown: When | None = Field(
        default=None, description="how a verdict shows it without judging it; null: it does not"
    )
    result: Key | None = Field(
        default=None, description="its key in `evaluation` of result.json, as last in metrics.jsonl"
    )
    panel: Line | None = Field(
        default=None, description="title of the panel that has its curve; null: there is none"
    )
    label: Line | None = Field(default=None, description="its line in the legend; null: its name")
    axis: AxisKind = Field(
        default="plain", description="axis of the panel, as its first metric has it"
    )

    @model_validator(mode="after")
    def _possible(self) -> Metric:
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise ValueError(f"least: {self.least:g} is not below most, {self.most:g}")
        return self

    def can_be(self, value: float) -> bool:
        """Return whether the metric can be `value`, in its unit."""
        return ((self.least is None or value >= self.least)
                and (self.most is None or value <= self.most))


class DataNeeds(strict.Model):
    """What the app reads: kinds of samples, and how many data sets at once."""

    kinds: list[SampleWord] = Field(
        default_factory=list,
        description="images of one class, of any number of classes, without; or sequences of them",
    )
    sets: Literal["zero", "one", "several"]

    @model_validator(mode="after")
    def _agree(self) -> DataNeeds:
        if (self.sets == "zero") != (not self.kinds):
            raise ValueError(f"kinds: {', '.join(self.kinds) or 'none'}, but sets: {self.sets}")
        return self


class Card(strict.Model):
    """`app.yaml` of an app."""

    schema_: Literal[1] = Field(alias="schema")
    title: Line
    framework: Word = Field(description="as its images are named: torch, tensorflow or another")
    module: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")] = Field(
        description="Python package that `python -m` runs"
    )
    verbs: dict[Word, Line] = Field(min_length=1, description="what it can do: one line of help")
    data: DataNeeds
    metrics: dict[Word, Metric] = Field(
        min_length=1, description="what a recipe can expect and a report shows, in its order"
    )
    neutral_options: list[Word] = Field(
        default_factory=list, description="options whose change leaves the experiment the same"
    )

    @property
    def rate(self) -> str | None:
        """The name of the metric that says how fast the app is, or None if it has none."""
        fast = (name for name, metric in self.metrics.items()
                if metric.hardware_bound and metric.better == "higher")
        return next(fast, None)


@dataclass(frozen=True)
class CardFile:
    """A card with its identity: `sha256` is that of its bytes."""

    path: Path
    sha256: str
    card: Card


_DEFINED = paths.Definitions("app", (f"apps/*/{CARD}",), paths.of_folder)
names = _DEFINED.names


def load(app: str) -> CardFile:
    """Load the card of `app`.

    Raises:
        UsageError: there is no such app (the nearest are named), or faults in its card, which
            may name no other verbs and options than `options.json` beside it.
    """
    folder = paths.app(app)
    if app not in names() and folder.is_dir():
        raise UsageError(
            f"{folder / CARD} is not there: nothing says what {app} does and reports",
            hint="apps/README.md has what is in it",
        )
    file = load_copy(_DEFINED.file_of(app))
    if not options.unchecked(app):
        hint = "make generate-apps writes options.json anew, from the settings of the app"
        strict.refuse(file.path, _faults(file.card, options.verbs(app)), hint)
    return file


def _faults(card: Card, verbs: Mapping[str, options.Verb]) -> Mapping[Location, str]:
    """Return where a card names what its app, which has these `verbs`, does not know."""
    found: dict[Location, str] = {
        ("verbs", verb): f"options.json has no such verb ({nearest(verb, verbs)})"
        for verb in card.verbs if verb not in verbs
    }
    if lost := [verb for verb in verbs if verb not in card.verbs]:
        found["verbs",] = f"{', '.join(lost)} of options.json is missing"
    known = {name: None for verb in verbs.values() for name in verb.options}
    for place, name in enumerate(card.neutral_options):
        if name not in known:
            near = nearest(name, known, cutoff=0.5)
            found["neutral_options", place] = f"the app has no option '{name}' ({near})"
    return found


def load_copy(path: Path) -> CardFile:
    """Load a card from any place, such as the copy in a run directory."""
    loaded = strict.load(Card, path)
    return CardFile(path, sha256(path), loaded)
