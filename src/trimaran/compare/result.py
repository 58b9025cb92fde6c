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
    """Repeats of one experiment.

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
    """The values of a metric in a group, their mean and standard deviation (None: one value)."""

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


class Scale(BaseModel):
    """The throughput of a group, relative to the group with the fewest ranks."""

    group: str
    nodes: int
    ranks: int
    metric: str
    rate: float
    unit: str
    digits: int
    speedup: float
    efficiency: float


class Comparison(BaseModel):
    """The result of comparing several runs."""

    app: str
    runs: list[Run]
    groups: list[Group]
    metrics: list[Metric]
    reached: list[Reach]
    scaling: list[Scale]
    notes: list[str]
