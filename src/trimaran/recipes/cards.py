"""App cards: the model of `apps/<app>/app.yaml`, which describes an app to the tool.

The tool has no list of metrics, units, verbs or kinds of data; it reads them from the app cards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from shards.kinds import SampleWord
from trimaran import paths, strict
from trimaran.errors import UsageError, nearest
from trimaran.files import sha256
from trimaran.parsing import Location
from trimaran.recipes.planning import Planning
from trimaran.recipes.words import Word

CARD = "app.yaml"

Key = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,100}$")]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
When = Annotated[
    str, Field(pattern=r"^(end|best|epoch-[1-9]\d{0,5}|median-after-epoch-\d{1,6})$")
]
"""The rule that selects the value of a metric from its readings: `end`, `best`, `epoch-N` or
`median-after-epoch-N` (see `verdict.metrics.measure`)."""

AxisKind = Literal["plain", "log", "from-zero"]


class Metric(strict.Model):
    """One metric that runs of the app report."""

    key: Key = Field(description="key of the metric in metrics.jsonl")
    unit: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f|]{0,16}$")] = ""
    factor: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="factor from the value in metrics.jsonl to the unit"
    )
    better: Literal["higher", "lower"]
    digits: Annotated[int, Field(ge=0, le=9)] = Field(
        default=2, description="number of decimal places in output"
    )
    hardware_bound: bool = Field(
        default=False,
        description="whether a reference is valid on the recipe's target only; the first such"
        " metric with better: higher is the rate that a scaling series compares",
    )
    least: Number | None = Field(default=None, description="smallest possible value, in the unit")
    most: Number | None = Field(default=None, description="largest possible value, in the unit")
    shown: When | None = Field(
        default=None, description="value that a verdict shows, not judged; null: it shows none"
    )
    result: Key | None = Field(
        default=None, description="key in `evaluation` of result.json, which has the last value"
    )
    panel: Line | None = Field(
        default=None, description="title of the panel with its curve; null: the curve is not drawn"
    )
    label: Line | None = Field(default=None, description="text in the legend; null: its name")
    axis: AxisKind = Field(
        default="plain", description="axis of the panel; the first metric of the panel decides"
    )

    @model_validator(mode="after")
    def _possible(self) -> Metric:
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise ValueError(f"least: {self.least:g} is not below most: {self.most:g}")
        return self

    def can_be(self, value: float) -> bool:
        """Return whether `value`, in the unit of the metric, is possible."""
        return ((self.least is None or value >= self.least)
                and (self.most is None or value <= self.most))


class DataNeeds(strict.Model):
    """The data that an app can read: the kinds of samples, and the number of data sets."""

    kinds: list[SampleWord] = Field(
        default_factory=list,
        description="kinds of samples that the app can read, such as `class` or `sequence`",
    )
    sets: Literal["zero", "one", "several"]

    @model_validator(mode="after")
    def _agree(self) -> DataNeeds:
        if (self.sets == "zero") != (not self.kinds):
            kinds = ", ".join(self.kinds) or "none"
            raise ValueError(f"kinds: {kinds} does not fit sets: {self.sets}")
        return self


class Variants(strict.Model):
    """The option whose values are the variants of an app, and the metrics to compare them by."""

    option: Word = Field(description="the option, such as `strategy`")
    further: list[Word] = Field(
        default_factory=list,
        description="options that also distinguish variants, unless they are off or missing",
    )
    follow: list[Word] = Field(
        default_factory=list,
        description="options whose values follow from the variant, so that recipes that differ in"
        " them, too, are compared with the quickstart in the README of the app",
    )
    files: dict[Key, Annotated[str, Field(pattern=r"^[\w-]+(/[\w-]+)*\.py$")]] = Field(
        min_length=1,
        description="value of the option -> Python file below the folder of the app, whose lines"
        " are compared; the order is that of tables",
    )
    per_epoch: Word = Field(description="metric that is shown after each epoch")
    time: Word = Field(description="metric: time of one epoch of training")
    sent: Word = Field(description="metric: amount of data that all ranks send in one step")


class Tuning(strict.Model):
    """Names of the app's options that `trimaran tune` changes; null: the app has no such option."""

    batch: Word | None = Field(
        default=None, description="option: samples of one step, a whole number"
    )
    batch_of: Literal["rank", "job"] = Field(
        default="rank", description="whether `batch` counts the samples of a rank or of all ranks"
    )
    parts: Word | None = Field(
        default=None, description="option: number of parts into which a rank divides its batch"
    )
    precision: Word | None = Field(default=None, description="option: precision of products")
    threads: Word | None = Field(
        default=None, description="option: threads that compute; null: OMP_NUM_THREADS sets them"
    )
    input: Word | None = Field(default=None, description="option: workers that read the input")
    strategy: Word | None = Field(
        default=None, description="option: how ranks are connected; its default is for one rank"
    )
    launchers: dict[Literal["torchrun", "mpirun", "horovodrun"], Word] = Field(
        default_factory=dict,
        description="launcher of several ranks of a node -> value of `strategy`; the first is used",
    )

    @property
    def options(self) -> dict[str, str]:
        """The keys of this section of the app card that name an option of the app, with the option.

        An example is `batch` -> `batch-size-per-rank`.
        """
        keys = ("batch", "parts", "precision", "threads", "input", "strategy")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}


class Card(strict.Model):
    """The app card, `app.yaml`."""

    schema_: Literal[1] = Field(alias="schema")
    title: Line
    framework: Word = Field(description="first part of its framework images' names, such as torch")
    module: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$")] = Field(
        description="Python package that `python -m` runs"
    )
    verbs: dict[Word, Line] = Field(min_length=1, description="verb of the app -> one line of help")
    data: DataNeeds
    metrics: dict[Word, Metric] = Field(
        min_length=1, description="metrics for recipes and reports, in the order of reports"
    )
    neutral_options: list[Word] = Field(
        default_factory=list, description="options that do not change the experiment"
    )
    variants: Variants | None = Field(
        default=None, description="the option whose values are compared; null: there is none"
    )
    planning: Planning | None = Field(
        default=None, description="options for `trimaran plan`; null: it cannot predict the app"
    )
    tuning: Tuning | None = Field(
        default=None, description="options for `trimaran tune`; null: it cannot tune the app"
    )

    @model_validator(mode="after")
    def _has_metric_of_planning(self) -> Card:
        name = None if self.planning is None else self.planning.epoch_time
        if name is not None and name not in self.metrics:
            raise ValueError(f"planning: no metric '{name}' ({nearest(name, self.metrics)})")
        return self

    @model_validator(mode="after")
    def _has_metrics_of_variants(self) -> Card:
        if (variants := self.variants) is None:
            return self
        for name in (variants.per_epoch, variants.time, variants.sent):
            if name not in self.metrics:
                raise ValueError(f"variants: no metric '{name}' ({nearest(name, self.metrics)})")
        if self.metrics[variants.time].better != "lower":
            raise ValueError(f"variants: {variants.time} is not a time: a higher one is better")
        return self

    @property
    def rate(self) -> str | None:
        """The name of the metric that measures the speed of the app, or None."""
        fast = (name for name, metric in self.metrics.items()
                if metric.hardware_bound and metric.better == "higher")
        return next(fast, None)


@dataclass(frozen=True)
class CardFile:
    """An app card with its path and the SHA-256 of its file."""

    path: Path
    sha256: str
    card: Card


_DEFINED = paths.Definitions("app", (f"apps/*/{CARD}",), paths.of_folder)
names = _DEFINED.names


def load(app: str) -> CardFile:
    """Load the card of `app`.

    Raises:
        UsageError: No app has this name (similar names are suggested), its card has faults, or the
            card has a verb or an option that is not in `options.json` of the app.
    """
    folder = paths.app(app)
    if app not in names() and folder.is_dir():
        raise UsageError(
            f"{folder / CARD} is missing: the app {app} needs an app card", code="file-missing",
            hint="apps/README.md describes the app card",
        )
    file = load_copy(_DEFINED.file_of(app))
    if not unchecked_options(app):
        hint = "`make generate-apps` writes options.json from the settings of the app"
        strict.refuse(file.path, _faults(file.card, verbs(app)), hint)
    return file


def _faults(card: Card, verbs: Mapping[str, Verb]) -> Mapping[Location, str]:
    """Return the contradictions between `card` and `options.json`, keyed by key path."""
    found: dict[Location, str] = {
        ("verbs", verb): f"options.json has no verb '{verb}' ({nearest(verb, verbs)})"
        for verb in card.verbs if verb not in verbs
    }
    if lost := [verb for verb in verbs if verb not in card.verbs]:
        found["verbs",] = f"the card lacks {', '.join(lost)}, which options.json has"
    known = {name: option for verb in verbs.values() for name, option in verb.options.items()}
    for place, name in _options_named_by(card):
        if name not in known:
            near = nearest(name, known, cutoff=0.5)
            found[place] = f"the app has no option '{name}' ({near})"
    for place, name, value in _values_named_by(card):
        if name in known and (fault := known[name].fault(value)):
            found[place] = f"{name} {fault}"
    return found


def _options_named_by(card: Card) -> Iterator[tuple[Location, str]]:
    """Yield the options that the card names, with their key paths."""
    yield from ((("neutral_options", at), name) for at, name in enumerate(card.neutral_options))
    if (variants := card.variants) is not None:
        yield ("variants", "option"), variants.option
        for key, names in (("further", variants.further), ("follow", variants.follow)):
            yield from ((("variants", key, at), name) for at, name in enumerate(names))
    if card.planning is not None:
        yield from ((("planning", *key), name) for key, name in card.planning.options())
    if card.tuning is not None:
        yield from ((("tuning", key), name) for key, name in card.tuning.options.items())


def _values_named_by(card: Card) -> Iterator[tuple[Location, str, str]]:
    """Yield each value of an option that the card names: its key path, the option, the value."""
    if (variants := card.variants) is not None:
        for value in variants.files:
            yield ("variants", "files", value), variants.option, value
    if card.planning is not None and (exchange := card.planning.exchange) is not None:
        for value in exchange.values:
            yield ("planning", "exchange", "values", value), exchange.option, value
    if (tuning := card.tuning) is not None and tuning.strategy is not None:
        for launcher, value in tuning.launchers.items():
            yield ("tuning", "launchers", launcher), tuning.strategy, value


def load_copy(path: Path) -> CardFile:
    """Load an app card from any path, such as the copy in a run directory."""
    loaded = strict.load(Card, path)
    return CardFile(path, sha256(path), loaded)


Argument = StrictBool | StrictInt | StrictFloat | StrictStr

_WORDS = {"integer": "a whole number", "number": "a number", "string": "a number or a word"}


class Option(strict.Model):
    """One option of a verb.

    A null `default` means that there is no default, or that it depends on the machine.
    """

    type: Literal["integer", "number", "boolean", "string"]
    enum: list[str] | None = None
    minimum: float | None = None
    exclusive_minimum: float | None = Field(default=None, alias="exclusiveMinimum")
    exclusive_maximum: float | None = Field(default=None, alias="exclusiveMaximum")
    default: Argument | None = None
    description: str

    def fault(self, value: Argument) -> str | None:
        """Return why the app would refuse `value` on its command line, or None."""
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if (self.type == "boolean") != isinstance(value, bool):
            allowed = "true or false" if self.type == "boolean" else _WORDS[self.type]
            return f"must be {allowed}, got {word}"
        if self.enum is not None and word not in self.enum:
            return f"must be one of {', '.join(self.enum)}; got {word}"
        if self.type in ("integer", "number"):
            return self._number_fault(word)
        return None

    def _number_fault(self, word: str) -> str | None:
        try:
            number = int(word) if self.type == "integer" else float(word)
        except ValueError:
            return f"must be {_WORDS[self.type]}, got {word}"
        if isinstance(number, float) and not math.isfinite(number):
            return f"must be finite, got {word}"
        if self.minimum is not None and number < self.minimum:
            return f"must be at least {self.minimum:g}, got {word}"
        if self.exclusive_minimum is not None and number <= self.exclusive_minimum:
            return f"must be above {self.exclusive_minimum:g}, got {word}"
        if self.exclusive_maximum is not None and number >= self.exclusive_maximum:
            return f"must be below {self.exclusive_maximum:g}, got {word}"
        return None


class Verb(strict.Model):
    """A verb of an app and its options by name; `renamed` maps old names of options to new ones."""

    description: str
    options: dict[str, Option]
    renamed: dict[str, str] = Field(default_factory=dict)


class AppOptions(strict.Model):
    """The content of `options.json`."""

    schema_: Literal[1] = Field(alias="schema")
    verbs: dict[str, Verb]


def unchecked_options(app: str) -> str | None:
    """Return why the arguments of `app` cannot be checked before a run, or None if they can."""
    if _path(app).is_file():
        return None
    return f"{_path(app)} is missing: only the app itself will check its arguments"


def verbs(app: str) -> dict[str, Verb]:
    """Return the verbs of `app` by name, from its `options.json`.

    Raises:
        UsageError: `options.json` is missing or damaged.
    """
    return strict.load_json(AppOptions, _path(app)).verbs


def argument_faults(app: str, verb: str, args: Mapping[str, Argument]) -> dict[str, str]:
    """Return a description of the fault of each faulty argument in `args`, keyed by the argument.

    The result is empty if no argument has a fault, or if the options of the app cannot be checked.

    Raises:
        UsageError: `options.json` is damaged, or does not describe the app's command `verb`.
    """
    if unchecked_options(app):
        return {}
    known = verbs(app)
    if verb not in known:
        raise UsageError(
            f"{_path(app)}: verbs: no '{verb}' ({nearest(verb, known)})", code="file-outdated",
            hint="`make generate-apps` writes the file",
        )
    found = {key: _fault(f"{app} {verb}", known[verb], key, value) for key, value in args.items()}
    return {key: fault for key, fault in found.items() if fault is not None}


def _fault(command: str, verb: Verb, key: str, value: Argument) -> str | None:
    if key in verb.options:
        return verb.options[key].fault(value)
    if key in verb.renamed:
        return f"was renamed to {verb.renamed[key]}"
    return f"{command} has no such option ({nearest(key, verb.options, cutoff=0.5)})"


def _path(app: str) -> Path:
    return paths.app(app) / "options.json"
