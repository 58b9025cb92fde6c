"""The result of a comparison, as `compare --json` prints it."""

from __future__ import annotations

from pydantic import BaseModel

from trimaran.compare import noise
from trimaran.recipes.cards import Argument
from trimaran.verdict.metrics import Outcome


class Run(BaseModel):
    """One of the compared runs.

    `name` is the letter of its group, for example A. If the group has several runs, a number
    follows, for example A1.
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

    `unlike` describes the differences between this experiment and that of the first group.
    `recipe_file` contains the first 12 digits of the recipe's SHA-256. `ranks` is None if the runs
    do not record the number of ranks.
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
    """The values of a metric in the runs of one group, with their mean and standard deviation.

    `deviation` is None if there is only one value.
    """

    group: str
    values: list[float]
    mean: float
    deviation: float | None


class Difference(BaseModel):
    """The difference between a group and the first group, in the metric's unit and in percent."""

    group: str
    value: float
    percent: float | None
    low: float | None
    high: float | None
    outcome: noise.Outcome
    method: str


class Metric(BaseModel):
    """The values of one metric at one moment, such as `end`, in all groups that have the metric."""

    metric: str
    at: str
    unit: str
    digits: int
    groups: list[Summary]
    differences: list[Difference]


class Arrival(BaseModel):
    """The step and the time in seconds at which a run first reached a given value of a metric.

    Both are None if the run did not reach the value, or if they are not known.
    """

    run: str
    step: int | None
    seconds: float | None


class Reach(BaseModel):
    """A value (`level`) of a metric, and the step and time at which each run first reached it."""

    metric: str
    unit: str
    level: float
    digits: int
    runs: list[Arrival]


class ExpectedEfficiency(BaseModel):
    """The scaling efficiency that the recipe of a group expects, and whether the group reached it.

    `measured` is the efficiency relative to the group with `over` devices, or None if there is no
    such group. The outcome is NO REFERENCE if `measured` is None, or if the throughput of a run has
    no reference, for example because the run was on a machine other than the target.
    """

    over: int
    value: float
    lowest: float
    source: str
    measured: float | None
    outcome: Outcome


class Scale(BaseModel):
    """The throughput, speed-up and scaling efficiency of a group.

    Speed-up and efficiency are relative to the group with the fewest devices. `devices` is the
    number of GPUs if a rank uses several GPUs, otherwise the number of ranks.
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
    """The end of an epoch: mean time and mean value of a metric over the runs of a group.

    `seconds` is the time since the start of a run, and `value` is the value of the metric that
    `Variants.per_epoch` names.
    """

    epoch: int
    seconds: float
    value: float


class Variant(BaseModel):
    """A group that used one variant of the app; see `Variants` for the units.

    Attributes:
        group: name of the group.
        name: value of the option, followed by further options that distinguish the variant.
        ranks: number of ranks; None: not recorded.
        times: for each run that reports times, the median time of its epochs after the first one.
        time: mean of `times`; None: no run reports the time of a second epoch.
        speedup: `time` of the first variant divided by `time`; None: a time is missing.
        epochs: the epochs that all runs of the group report.
        sent: mean amount of data that all ranks send in one step; None: not reported.
        file: file of the app that contains the variant; None: the app card names no file.
        lines: number of lines of code that are removed from the file of the first variant or added
            to get `file`; None: one of the two files is missing.
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
    """A metric in the table of variants, with its unit and its number of decimal places."""

    metric: str
    unit: str
    digits: int

    def text(self, value: float | None) -> str:
        """Return a value as text with `digits` decimal places and without a unit; `-` for None."""
        return "-" if value is None else f"{value:,.{self.digits}f}"

    @property
    def title(self) -> str:
        """The name of the metric, followed by its unit."""
        return f"{self.metric}, {self.unit}".removesuffix(", ")


class Variants(BaseModel):
    """The results for the variants of an app that the groups of runs used.

    `option` is the option of the app whose value is the variant. The first group is the baseline.
    """

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
