"""The result of a comparison, as `compare --json` prints it."""

from __future__ import annotations

from pydantic import BaseModel

from trimaran.compare import noise
from trimaran.recipes.cards import Argument
from trimaran.verdict.metrics import Outcome


class Run(BaseModel):
    """One run.

    `name` is the letter of its group. If the group has several runs, a number follows.
    """

    name: str
    group: str
    source: str
    changed: dict[str, Argument]
    started: str
    seconds: float
    verdict: Outcome


class Group(BaseModel):
    """The repeats of one experiment.

    `unlike` lists the differences from the first group. `recipe_file` is the beginning of the
    SHA-256 of the recipe. `ranks` is None if the runs do not record the number of ranks.
    """

    name: str
    runs: list[str]
    recipe: str
    recipe_file: str
    arguments: str
    image: str
    machine: str
    modified: str
    nodes: int
    ranks: int | None
    unlike: list[str]


class Summary(BaseModel):
    """The values of a metric in a group, with their mean and standard deviation.

    `deviation` is None if there is only one value.
    """

    group: str
    values: list[float]
    mean: float
    deviation: float | None


class Difference(BaseModel):
    """The difference of a group from the first group, in the unit of the metric and in percent."""

    group: str
    value: float
    percent: float | None
    low: float | None
    high: float | None
    outcome: noise.Outcome
    method: str


class Metric(BaseModel):
    """One metric, read at one moment, in all groups that have it."""

    metric: str
    at: str
    unit: str
    digits: int
    groups: list[Summary]
    differences: list[Difference]


class Arrival(BaseModel):
    """The step and the time at which a run first reached a level.

    `step` and `seconds` are None if the run did not reach the level, or if they are not known.
    """

    run: str
    step: int | None
    seconds: float | None


class Reach(BaseModel):
    """A level of a metric, and the first evaluation in each run that reached it."""

    metric: str
    unit: str
    level: float
    digits: int
    runs: list[Arrival]


class ExpectedEfficiency(BaseModel):
    """The efficiency that the recipe of a group expects, and whether the group reached it.

    `measured` is the efficiency relative to the group with `over` devices, or None if there is no
    such group. Without it, or if the throughput of a run has no reference, for example because the
    machine is another one, the outcome is NO REFERENCE.
    """

    over: int
    value: float
    lowest: float
    source: str
    measured: float | None
    outcome: Outcome


class Scale(BaseModel):
    """The throughput of a group, relative to the group with the fewest devices.

    `devices` are the GPUs of ranks that have several, otherwise the ranks.
    """

    group: str
    nodes: int
    ranks: int
    devices: int
    metric: str
    rate: float
    unit: str
    digits: int
    speedup: float
    efficiency: float
    expected: ExpectedEfficiency | None = None


class Epoch(BaseModel):
    """The end of an epoch: means over the runs of a group.

    `seconds` is the time since the start of the run, and `value` the metric of `per_epoch`.
    """

    epoch: int
    seconds: float
    value: float


class Variant(BaseModel):
    """A group that used one variant of the app; see `Variants` for the units.

    Attributes:
        group: name of the group.
        name: value of the option, followed by its further options.
        ranks: number of ranks; None: not recorded.
        times: for each run that reports it, the median time over its epochs without the first.
        time: mean of `times`; None: no run reports the time of a second epoch.
        speedup: `time` of the first variant divided by `time`.
        epochs: the epochs that all runs of the group report.
        sent: mean over the runs; None: not reported.
        file: file of the app with the variant; None: the app card has none.
        lines: lines of code to remove and to add between the file of the first variant and this
            one; None: one of the files is not known or not here.
    """

    group: str
    name: str
    ranks: int | None
    times: list[float]
    time: float | None
    speedup: float | None
    epochs: list[Epoch]
    sent: float | None
    file: str | None
    lines: int | None


class Quantity(BaseModel):
    """A metric of the table of variants."""

    metric: str
    unit: str
    digits: int

    def text(self, value: float | None) -> str:
        """Return a value with its decimal places, without its unit; `-` for None."""
        return "-" if value is None else f"{value:,.{self.digits}f}"

    @property
    def title(self) -> str:
        """The metric and its unit."""
        return f"{self.metric}, {self.unit}".removesuffix(", ")


class Variants(BaseModel):
    """Groups that differ in the option that the app card names; the first is the base."""

    option: str
    per_epoch: Quantity
    time: Quantity
    sent: Quantity
    groups: list[Variant]


class Comparison(BaseModel):
    """The result of comparing several runs."""

    app: str
    runs: list[Run]
    groups: list[Group]
    metrics: list[Metric]
    reached: list[Reach]
    scaling: list[Scale]
    variants: Variants | None
    notes: list[str]
