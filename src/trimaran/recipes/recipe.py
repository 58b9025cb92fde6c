"""Model a recipe: its app, target and purpose, exact arguments, and expected result."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from shards.kinds import FormatName
from trimaran import strict
from trimaran.architectures import Architecture
from trimaran.parsing import Location
from trimaran.recipes import assumed
from trimaran.recipes.assumed import Assumed
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.expectation import Efficiency, Expectation
from trimaran.recipes.words import Word
from trimaran.site_file import Fingerprint
from trimaran.strict import Digest, Finite, Sha256

Purpose = Literal["quickstart", "smoke", "throughput", "scaling", "convergence"]
Launcher = Literal["none", "torchrun", "mpirun", "horovodrun", "srun"]
"""The program that starts the ranks; `srun` stands for the launcher of any batch system."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Option = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
WallTime = Annotated[str, Field(pattern=r"^\d{2,}:[0-5]\d:[0-5]\d$")]

OWN_OPTIONS = frozenset({"data", "out", "initial"})
"""App options that only Trimaran sets, so that a recipe must not contain them."""

SYNTHETIC = "synthetic"
"""The option with which an app generates its samples and reads no data (app contract)."""


Digests = Annotated[dict[Architecture, Digest], Field(min_length=1)]
"""The digest of an image for each architecture."""

_FORMS: dict[bool, TypeAdapter[str] | TypeAdapter[dict[Architecture, str]]] = {
    False: TypeAdapter(Digest, config=ConfigDict(defer_build=True)),
    True: TypeAdapter(Digests, config=ConfigDict(defer_build=True)),
}


def _of_one_form(value: object) -> object:
    """Validate a digest, or a dictionary of digests, so that an error is about this form only.

    A union would report the faults of the other form, too.
    """
    return value if value is None else _FORMS[isinstance(value, dict)].validate_python(value)


class ImageChoice(strict.Model):
    """The app image of a recipe.

    It is the published image with `digest`, or an image built on the machine if `digest` is null.
    """

    name: Name
    digest: Annotated[Digest | Digests | None, BeforeValidator(_of_one_form)] = Field(
        default=None, description="one digest, or the digest of the image for each architecture"
        " (not of a manifest or an index); null: the image is built on the machine"
    )
    signed_by: list[Fingerprint] = Field(
        default_factory=list, description="PGP fingerprints; one of these keys must have signed it"
    )

    def digest_for(self, architecture: Architecture) -> Digest | None:
        """Return the digest of the image for an architecture, or None if the recipe has none.

        A recipe can have a single digest without an architecture. It is returned for each of them;
        the architecture of the image is then compared with that of the machine.
        """
        pinned = self.digest
        return pinned.get(architecture) if isinstance(pinned, dict) else pinned

    @property
    def digests(self) -> list[Digest]:
        """The pinned digests of the image: one for each architecture, or a single one, or none."""
        if isinstance(self.digest, dict):
            return list(self.digest.values())
        return [self.digest] if self.digest else []


class DataUse(strict.Model):
    """The use of a data set in a recipe: packed format, and the number of samples of each split."""

    format: FormatName
    samples: dict[Name, Annotated[int, Field(gt=0)]]


class Initial(strict.Model):
    """The initial weights of a training: a checkpoint of another recipe, or published weights.

    Attributes:
        recipe: name of the other recipe; the user provides a run of it.
        step: step of the checkpoint.
        steps: if the other recipe is a series: number of each run (point) of the series -> step of
            its checkpoint.
        weights: name of published weights to download: `recipes/data/weights/NAME.yaml`.
    """

    recipe: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")] | None = None
    step: Annotated[int, Field(gt=0)] | None = None
    steps: dict[Annotated[int, Field(ge=1)], Annotated[int, Field(gt=0)]] = Field(
        default_factory=dict, description="point of the other recipe, a series -> step"
    )
    weights: Name | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Initial:
        ways = [self.step is not None, bool(self.steps)].count(True)
        if (self.recipe is None) == (self.weights is None) or ways != (self.recipe is not None):
            raise ValueError("give 'recipe' with 'step' (with 'steps' for a series), or 'weights'")
        return self

    @property
    def files(self) -> dict[str, str]:
        """The checkpoints of `recipe` from which a training can start: file name -> description.

        A description consists of the step and the recipe, such as `step 500 of app/name`.
        """
        steps = {f"@{point}": step for point, step in self.steps.items()}
        return {
            f"step-{step:08d}.npz": f"step {step} of {self.recipe}{point}"
            for point, step in (steps or {"": self.step or 0}).items()
        }


class Resources(strict.Model):
    """The resources of a run."""

    nodes: Annotated[int, Field(ge=1)] = 1
    tasks_per_node: Annotated[int, Field(ge=1)] = 1
    cpus_per_task: Annotated[int, Field(ge=1)]
    gpus_per_task: Annotated[int, Field(ge=0)] = 0
    walltime: WallTime
    mps: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="number of tasks that share a GPU by NVIDIA MPS"
    )
    min_nodes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="number of nodes with which an elastic run can continue"
    )

    @model_validator(mode="after")
    def _shared(self) -> Resources:
        if self.mps and (self.gpus_per_task != 1 or self.tasks_per_node % self.mps):
            raise ValueError(f"mps: {self.tasks_per_node} tasks with gpus_per_task"
                             f" {self.gpus_per_task} cannot share GPUs in groups of {self.mps}:"
                             " give gpus_per_task: 1, and a multiple of mps as tasks_per_node")
        if self.min_nodes and (self.min_nodes >= self.nodes or self.nodes % self.min_nodes):
            raise ValueError(f"min_nodes: {self.min_nodes} is not a smaller divisor of"
                             f" {self.nodes} nodes: the remaining ranks share the batch evenly")
        return self

    @property
    def gpus_per_node(self) -> int:
        """Number of GPUs that the tasks of a node use."""
        return self.gpus_per_task * self.tasks_per_node // (self.mps or 1)

    @property
    def devices_per_node(self) -> int:
        """Number of devices of a node that compute.

        It is the number of GPUs if a rank has several GPUs, otherwise the number of ranks.
        """
        return self.tasks_per_node * max(self.gpus_per_task, 1)


class PointResources(strict.Model):
    """The resources of a point (one run) of a series, without the number of tasks."""

    cpus_per_task: Annotated[int, Field(ge=1)] | None = None
    gpus_per_task: Annotated[int, Field(ge=0)] | None = None
    walltime: WallTime | None = None


class SeriesPoint(strict.Model):
    """One point (run) of a series: its expectations, and its own values of keys of the recipe."""

    resources: PointResources | None = None
    launcher: Launcher | None = None
    env: dict[Variable, StrictStr] = Field(default_factory=dict)
    args: dict[Option, Argument] = Field(default_factory=dict)
    expected: list[Expectation] = Field(
        description="values that must be reached; []: there is no reference for this size yet"
    )
    efficiency: Efficiency | None = Field(
        default=None, description="published efficiency, judged by `trimaran compare`"
    )


class Series(strict.Model):
    """One experiment at several sizes; `points` maps each size to the settings of its run."""

    over: Literal["ranks", "nodes", "gpus"] = Field(
        description="unit of the sizes; `ranks` fill one node after the other; `gpus` are those of"
        " each rank"
    )
    points: dict[Annotated[int, Field(ge=1)], SeriesPoint] = Field(min_length=1)

    def split(self, number: int, resources: Resources) -> dict[str, int]:
        """Return the fields of `Resources` that depend on the size of a run: field -> value.

        Args:
            number: size of the run: number of nodes, of ranks, or of GPUs per rank, as `over` says.
            resources: resources of the recipe, with the number of tasks of a full node.

        Raises:
            ValueError: The ranks do not fill whole nodes.
        """
        if self.over == "nodes":
            return {"nodes": number}
        if self.over == "gpus":
            return {"gpus_per_task": number}
        tasks = min(number, resources.tasks_per_node)
        if number % tasks:
            raise ValueError(f"series.points: {number} ranks do not fill nodes of {tasks} ranks")
        return {"nodes": number // tasks, "tasks_per_node": tasks}


class Tuned(strict.Model):
    """The origin of a recipe that `trimaran tune` derived from another one.

    Attributes:
        recipe: name of the other recipe; `sha256` is the hash of its file.
        date: day of the runs.
        host: the machine, in words.
        engine: the engine of the runs.
        command: the command that wrote the recipe.
        metric: the metric that was tuned, and its unit.
        default: values of the metric with the other recipe, one for each run.
        tuned: values of the metric with this recipe. Runs with the two recipes alternated, so each
            value is paired with the value in `default` at the same index.
        gain: mean relative gain, with the ends of its confidence interval.
        changed: settings that were changed.
    """

    recipe: str
    sha256: Sha256
    date: date
    host: str
    engine: str
    image_digest: Digest | None = None
    command: str
    metric: Word
    unit: str
    default: list[Finite] = Field(min_length=2)
    tuned: list[Finite] = Field(min_length=2)
    gain: Finite
    gain_low: Finite
    gain_high: Finite
    changed: dict[Option, StrictInt | StrictStr | None]


class Recipe(strict.Model):
    """One exact experiment and the expected result."""

    schema_: Literal[1] = Field(alias="schema")
    summary: str
    app: Name
    verb: Word = Field(default="train", description="one of the verbs in the app card")
    target: Name
    purpose: Purpose
    image: ImageChoice
    data: dict[Name, DataUse] = Field(description="data sets, in a number that the app card allows")
    initial: Initial | None = Field(
        default=None, description="initial weights: a checkpoint of another recipe, which the user"
        " gives, or published weights, which are downloaded"
    )
    resources: Resources
    launcher: Launcher
    env: dict[Variable, StrictStr] = Field(default_factory=dict)
    args: dict[Option, Argument]
    expected: list[Expectation] = Field(
        default_factory=list,
        description="values that must be reached; omitted in a series, whose points have their"
        " own; []: there is no reference yet",
    )
    series: Series | None = Field(
        default=None, description="the same experiment at several sizes"
    )
    efficiency: Efficiency | None = Field(
        default=None, description="of the point of a series, which has this key; null: none"
    )
    assumed: Assumed
    tuned: Tuned | None = Field(
        default=None, description="how `trimaran tune` derived this recipe; null: it did not"
    )

    @model_validator(mode="after")
    def _assumed_exist(self) -> Recipe:
        if self.assumed:
            assumed.check(self.assumed, self.model_dump(by_alias=True, exclude={"assumed"}))
        return self

    @model_validator(mode="after")
    def _expects(self) -> Recipe:
        if ("expected" in self.model_fields_set) == (self.series is not None):
            raise ValueError("give either 'expected' or 'series', whose points have 'expected'")
        return self

    @model_validator(mode="after")
    def _has_efficiency_of_points(self) -> Recipe:
        points = self.series.points if self.series else {}
        for number, point in points.items():
            over = None if point.efficiency is None else point.efficiency.over
            if over is not None and (over not in points or over >= number):
                raise ValueError(f"series.points.{number}.efficiency.over: {over} is no smaller"
                                 " point of the series")
        return self

    @model_validator(mode="after")
    def _launched(self) -> Recipe:
        if self.series is not None:
            return self  # `_whole_points` checks the points of a series
        ranks = self.resources.nodes * self.resources.tasks_per_node
        if (self.launcher == "none") != (ranks == 1):
            raise ValueError(f"launcher: '{self.launcher}' cannot start {ranks} tasks")
        if self.launcher == "horovodrun" and self.resources.nodes > 1:
            raise ValueError("launcher: horovodrun needs ssh to reach other nodes, which containers"
                             " lack: use srun or mpirun, which start Horovod, too")
        return self

    @model_validator(mode="after")
    def _own_options(self) -> Recipe:
        clash = OWN_OPTIONS & self.args.keys()
        if clash:
            raise ValueError(f"args: {', '.join(sorted(clash))}: set by Trimaran; remove it")
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
        """Return the recipe of the run (point) `number` of this series, with its own settings."""
        assert self.series is not None  # noqa: S101 - for the types
        point = self.series.points[number]
        own = point.model_dump(exclude_none=True)
        whole = self.model_dump(by_alias=True, exclude={"series", "assumed"})
        recipe = Recipe.model_validate({
            **whole, **own,
            "resources": {
                **whole["resources"], **self.series.split(number, self.resources),
                **own.get("resources", {}),
            },
            "env": {**self.env, **point.env}, "args": {**self.args, **point.args},
        })
        # The key `series` remains: its reason is valid for each point, which has no such key.
        return recipe.model_copy(update={"assumed": assumed.of_point(self.assumed, number, own)})

    def variants(self) -> Iterator[tuple[int | None, Recipe]]:
        """Yield (number, recipe) for each run (point) of a series.

        If this recipe is not a series, yield (None, this recipe).
        """
        if self.series is None:
            yield None, self
        else:
            yield from ((number, self.at(number)) for number in self.series.points)

    def assumptions(self) -> list[tuple[str, str]]:
        """Return each assumed value with its key path, and the reason for it."""
        return list(assumed.lines(self.assumed, self.model_dump(by_alias=True)))

    def expectations(self) -> Iterator[tuple[Location, Expectation]]:
        """Yield each expectation of the recipe, and of all runs of a series, with its key path."""
        tables: dict[Location, list[Expectation]] = {("expected",): self.expected}
        for number, point in (self.series.points if self.series else {}).items():
            tables["series", "points", number, "expected"] = point.expected
        for place, table in tables.items():
            yield from (((*place, index), expected) for index, expected in enumerate(table))

    def expectation_faults(self, card: Card) -> dict[Location, str]:
        """Return the faults in the expected results of the recipe: key path -> fault.

        The expected results of all runs of a series are included.
        """
        found: dict[Location, str] = {}
        for at, expected in self.expectations():
            key, problem = expected.fault(self.app, card)
            if problem:
                place = (*at, key)
                found[place] = problem
        return found
