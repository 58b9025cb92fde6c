"""What a recipe says: app x target x purpose, the exact arguments, the expected result."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StrictStr, ValidationError, model_validator

from shards.kinds import FormatName
from trimaran import strict
from trimaran.parsing import Location
from trimaran.recipes.cards import Number, When, Word
from trimaran.recipes.options import Argument
from trimaran.site_file import Fingerprint
from trimaran.strict import Digest

Purpose = Literal["quickstart", "smoke", "throughput", "scaling", "convergence"]
Launcher = Literal["none", "torchrun", "mpirun", "horovodrun", "srun"]
"""What starts the ranks: `srun` stands for the batch system's own launcher, whichever it is."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Option = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
WallTime = Annotated[str, Field(pattern=r"^\d{2,}:[0-5]\d:[0-5]\d$")]

OWN_OPTIONS = frozenset({"data", "out", "initial"})
"""App options that Trimaran sets itself."""

SYNTHETIC = "synthetic"
"""The option with which an app reads no data (app contract)."""


class Measured(strict.Model):
    """Where a number measured by this project comes from."""

    date: date
    host: str
    command: str
    image_digest: Digest | None = Field(description="null: measured outside a container")
    seeds: dict[int, Number] = Field(min_length=1, description="result of each seed")
    note: str | None = None


class Expectation(strict.Model):
    """One number that a run must reach, and where the number comes from."""

    metric: Word = Field(description="one of those in the app's card")
    unit: str = Field(default="", description="that of the card")
    at: When
    value: Number
    lower: Number | None = Field(
        default=None, gt=-1, le=0, description="relative margin below, e.g. -0.01"
    )
    upper: Number | None = Field(default=None, ge=0, description="relative margin above")
    source: str | None = Field(default=None, description="publication of the number")
    measured: Measured | None = None

    @model_validator(mode="after")
    def _complete(self) -> Expectation:
        if (self.source is None) == (self.measured is None):
            raise ValueError("give exactly one of 'source' (published) and 'measured' (by us)")
        if self.measured is not None:
            seeds = self.measured.seeds.values()
            if not min(seeds) <= self.value <= max(seeds):
                raise ValueError(
                    f"value: {self.value:g} is not between the results of the seeds,"
                    f" {min(seeds):g} to {max(seeds):g}"
                )
        return self

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Lowest and highest accepted value, in `unit`; None: any."""
        way = 1 if self.value >= 0 else -1  # below a number is below it, whatever its sign
        low = None if self.lower is None else self.value * (1 + way * self.lower)
        high = None if self.upper is None else self.value * (1 + way * self.upper)
        return low, high


class ImageChoice(strict.Model):
    """The app image; a digest pins a published one, null takes the one built here."""

    name: Name
    digest: Digest | None = None
    signed_by: list[Fingerprint] = Field(
        default_factory=list, description="PGP fingerprints: one of these keys must have signed it"
    )


class DataUse(strict.Model):
    """How a data set is used: its packed format and the samples that must be there."""

    format: FormatName
    samples: dict[Name, Annotated[int, Field(gt=0)]]


class Initial(strict.Model):
    """What a training begins with: the checkpoint of a step of another recipe, or weights.

    Attributes:
        recipe: the other recipe, whose run the user has.
        step: whose checkpoint is taken.
        steps: the same where the other one is a series, by its points.
        weights: published ones, which are fetched: `recipes/data/weights/NAME.yaml`.
    """

    recipe: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")] | None = None
    step: Annotated[int, Field(gt=0)] | None = None
    steps: dict[Annotated[int, Field(ge=1)], Annotated[int, Field(gt=0)]] = Field(
        default_factory=dict, description="where the other recipe is a series: by its points"
    )
    weights: Name | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Initial:
        ways = [self.step is not None, bool(self.steps)].count(True)
        if (self.recipe is None) == (self.weights is None) or ways != (self.recipe is not None):
            raise ValueError("give either 'recipe' with 'step', or of a series 'steps', or"
                             " 'weights'")
        return self

    @property
    def files(self) -> dict[str, str]:
        """Names of the checkpoints' files (app contract), with what each is of."""
        steps = {f"@{point}": step for point, step in self.steps.items()}
        return {
            f"step-{step:08d}.npz": f"step {step} of {self.recipe}{point}"
            for point, step in (steps or {"": self.step or 0}).items()
        }


class Resources(strict.Model):
    """What the run needs from the machine."""

    nodes: Annotated[int, Field(ge=1)] = 1
    tasks_per_node: Annotated[int, Field(ge=1)] = 1
    cpus_per_task: Annotated[int, Field(ge=1)]
    gpus_per_task: Annotated[int, Field(ge=0)] = 0
    walltime: WallTime
    mps: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="tasks that share a GPU, under NVIDIA's MPS"
    )
    min_nodes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="an elastic run goes on with so few nodes where others are lost"
    )

    @model_validator(mode="after")
    def _shared(self) -> Resources:
        if self.mps and (self.gpus_per_task != 1 or self.tasks_per_node % self.mps):
            raise ValueError(f"mps: {self.tasks_per_node} tasks with gpus_per_task"
                             f" {self.gpus_per_task} do not share GPUs by {self.mps}: say"
                             " gpus_per_task: 1, and whole GPUs")
        if self.min_nodes and (self.min_nodes >= self.nodes or self.nodes % self.min_nodes):
            raise ValueError(f"min_nodes: {self.min_nodes} is no smaller divisor of {self.nodes}"
                             " nodes: the ranks that are left share the batch evenly")
        return self

    @property
    def gpus_per_node(self) -> int:
        """GPUs that the tasks of a node have together."""
        return self.gpus_per_task * self.tasks_per_node // (self.mps or 1)


class PointResources(strict.Model):
    """What a point needs that is not the number of its tasks."""

    cpus_per_task: Annotated[int, Field(ge=1)] | None = None
    gpus_per_task: Annotated[int, Field(ge=0)] | None = None
    walltime: WallTime | None = None


class SeriesPoint(strict.Model):
    """One point of a series: what it expects, and what is its own."""

    resources: PointResources | None = None
    launcher: Launcher | None = None
    env: dict[Variable, StrictStr] = Field(default_factory=dict)
    args: dict[Option, Argument] = Field(default_factory=dict)
    expected: list[Expectation] = Field(min_length=1)


class Series(strict.Model):
    """The same experiment at several sizes; `points` are by size."""

    over: Literal["ranks", "nodes"] = Field(
        description="what the numbers of the points are; `ranks` fill node after node"
    )
    points: dict[Annotated[int, Field(ge=1)], SeriesPoint] = Field(min_length=1)

    def split(self, number: int, resources: Resources) -> dict[str, int]:
        """Return nodes and tasks of the point `number`; `resources` has the tasks of a full node.

        Raises:
            ValueError: its ranks do not fill whole nodes.
        """
        if self.over == "nodes":
            return {"nodes": number}
        tasks = min(number, resources.tasks_per_node)
        if number % tasks:
            raise ValueError(f"series.points: {number} ranks are no whole nodes of {tasks}")
        return {"nodes": number // tasks, "tasks_per_node": tasks}


class Recipe(strict.Model):
    """One exact experiment and the result that it must reproduce."""

    schema_: Literal[1] = Field(alias="schema")
    summary: str
    app: Name
    verb: Word = Field(default="train", description="what the app does: one of its card's verbs")
    target: Name
    purpose: Purpose
    image: ImageChoice
    data: dict[Name, DataUse] = Field(description="what it reads, as the app's card allows")
    initial: Initial | None = Field(
        default=None, description="what the run begins with: a checkpoint of another recipe, which"
        " its user gives, or published weights, which are fetched"
    )
    resources: Resources
    launcher: Launcher
    env: dict[Variable, StrictStr] = Field(default_factory=dict)
    args: dict[Option, Argument]
    expected: list[Expectation] = Field(
        default_factory=list,
        description="what must be reached; a series says it at its points, and [] that nobody has"
        " measured it yet",
    )
    series: Series | None = Field(
        default=None, description="the same experiment on more and more of the machine"
    )

    @model_validator(mode="after")
    def _expects(self) -> Recipe:
        if ("expected" in self.model_fields_set) == (self.series is not None):
            raise ValueError("give 'expected' or, with one for each point, 'series'")
        return self

    @model_validator(mode="after")
    def _launched(self) -> Recipe:
        if self.series is not None:
            return self  # its points are
        ranks = self.resources.nodes * self.resources.tasks_per_node
        if (self.launcher == "none") != (ranks == 1):
            raise ValueError(f"launcher: '{self.launcher}' does not start {ranks} tasks")
        if self.launcher == "horovodrun" and self.resources.nodes > 1:
            raise ValueError("launcher: horovodrun reaches other nodes by ssh, which containers"
                             " have none of: say srun or mpirun, by which Horovod starts as well")
        return self

    @model_validator(mode="after")
    def _own_options(self) -> Recipe:
        clash = OWN_OPTIONS & self.args.keys()
        if clash:
            raise ValueError(f"args: {', '.join(sorted(clash))}: set by Trimaran, remove it")
        return self

    @model_validator(mode="after")
    def _whole_points(self) -> Recipe:
        for number in self.series.points if self.series else ():
            try:
                self.at(number)
            except ValidationError as error:
                problem = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"series.points.{number}: {problem}") from error
        return self

    def at(self, number: int) -> Recipe:
        """Return the recipe that a point of the series is."""
        assert self.series is not None  # noqa: S101 - for the types
        point = self.series.points[number]
        own = point.model_dump(exclude_none=True)
        whole = self.model_dump(by_alias=True, exclude={"series"})
        return Recipe.model_validate({
            **whole, **own,
            "resources": {
                **whole["resources"], **self.series.split(number, self.resources),
                **own.get("resources", {}),
            },
            "env": {**self.env, **point.env}, "args": {**self.args, **point.args},
        })

    def variants(self) -> Iterator[tuple[int | None, Recipe]]:
        """Yield each point of a series with its recipe, else no point and the recipe itself."""
        if self.series is None:
            yield None, self
        else:
            yield from ((number, self.at(number)) for number in self.series.points)

    def expectations(self) -> Iterator[tuple[Location, Expectation]]:
        """Yield every expectation with its place in the file, those of all points of a series."""
        tables: dict[Location, list[Expectation]] = {("expected",): self.expected}
        for number, point in (self.series.points if self.series else {}).items():
            tables["series", "points", number, "expected"] = point.expected
        for place, table in tables.items():
            yield from (((*place, index), one) for index, one in enumerate(table))
