"""What a comparison says, as `compare --json` prints it."""

from __future__ import annotations

from pydantic import BaseModel

from trimaran.compare import noise
from trimaran.recipes.options import Argument
from trimaran.verdict.rules import Outcome


class Run(BaseModel):
    """One run: `name` is the letter of its group and, where it is not alone there, a number."""

    name: str
    group: str
    source: str
    changed: dict[str, Argument]
    started: str
    seconds: float
    verdict: Outcome


class Group(BaseModel):
    """Repeats of one experiment; `unlike` says in what they are not those of the first group.

    `recipe_file` is the beginning of its SHA-256; `ranks` of None: the runs do not say.
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
    """The values of a metric in a group, with mean and, of several, standard deviation."""

    group: str
    values: list[float]
    mean: float
    deviation: float | None


class Difference(BaseModel):
    """A group less the first one, in the unit of the metric and in percent of the first."""

    group: str
    value: float
    percent: float | None
    low: float | None
    high: float | None
    outcome: noise.Outcome
    method: str


class Metric(BaseModel):
    """One metric at the same moment of all groups that have it."""

    metric: str
    at: str
    unit: str
    digits: int
    groups: list[Summary]
    differences: list[Difference]


class Arrival(BaseModel):
    """When a run first reached a level; None: never, or nobody knows."""

    run: str
    step: int | None
    seconds: float | None


class Reach(BaseModel):
    """How soon a level of a metric was reached, at the evaluation that first told so."""

    metric: str
    unit: str
    level: float
    digits: int
    runs: list[Arrival]


class Scale(BaseModel):
    """A group among groups of other sizes: its `rate` against that with the fewest ranks."""

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
    """All that can be said of several runs side by side."""

    app: str
    runs: list[Run]
    groups: list[Group]
    metrics: list[Metric]
    reached: list[Reach]
    scaling: list[Scale]
    notes: list[str]
