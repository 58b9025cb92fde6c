"""What a recipe says: app x target x purpose, the exact arguments, the expected result."""

from __future__ import annotations

import sys
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StrictStr, model_validator

from trimaran import strict
from trimaran.data.contracts import FormatName
from trimaran.recipes.card import Number, When
from trimaran.recipes.options import Argument
from trimaran.sites import Fingerprint

Purpose = Literal["quickstart", "smoke", "throughput", "scaling", "convergence"]
Launcher = Literal["none", "torchrun", "mpirun", "srun"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Option = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]

OWN_OPTIONS = frozenset({"data", "out", "initial"})
"""App options that Trimaran sets itself."""

NEUTRAL_OPTIONS = frozenset({"seed"})
"""Options whose change leaves the experiment the same: references hold over seeds."""

METRIC_UNITS = {"val_top1": "%", "val_top5": "%", "throughput": "img/s"}
"""Metrics that a recipe can expect, with their unit."""

SYNTHETIC = "synthetic"
"""The option with which an app reads no data (app contract)."""

UNIT_LIMITS = {"%": (0.0, 100.0), "img/s": (0.0, sys.float_info.max)}
"""The least and the most that a metric of this unit can be."""

HARDWARE_BOUND = frozenset({"throughput"})
"""Metrics whose reference holds only on the recipe's own target."""


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

    metric: Literal["val_top1", "val_top5", "throughput"]
    unit: Literal["%", "img/s"]
    at: When
    value: Number = Field(gt=0)
    # All of these metrics are the better the higher, so without `lower` nothing would be checked.
    lower: Number = Field(gt=-1, le=0, description="relative margin below, e.g. -0.01")
    upper: Number | None = Field(default=None, ge=0, description="relative margin above")
    source: str | None = Field(default=None, description="publication of the number")
    measured: Measured | None = None

    @model_validator(mode="after")
    def _complete(self) -> Expectation:
        if self.unit != METRIC_UNITS[self.metric]:
            raise ValueError(f"the unit of {self.metric} is {METRIC_UNITS[self.metric]}")
        if (self.source is None) == (self.measured is None):
            raise ValueError("give exactly one of 'source' (published) and 'measured' (by us)")
        if self.value > UNIT_LIMITS[self.unit][1]:
            raise ValueError(f"value: {self.value:g} {self.unit} cannot be")
        if self.measured is not None:
            seeds = self.measured.seeds.values()
            if not min(seeds) <= self.value <= max(seeds):
                raise ValueError(
                    f"value: {self.value:g} is not between the results of the seeds,"
                    f" {min(seeds):g} to {max(seeds):g}"
                )
        return self

    @property
    def bounds(self) -> tuple[float, float | None]:
        """Lowest and highest accepted value, in `unit`."""
        high = None if self.upper is None else self.value * (1 + self.upper)
        return self.value * (1 + self.lower), high


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
    """The checkpoint that a second stage begins with: a step of another recipe."""

    recipe: Annotated[str, Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")]
    step: Annotated[int, Field(gt=0)]

    @property
    def file(self) -> str:
        """Name of the checkpoint's file (app contract)."""
        return f"step-{self.step:08d}.npz"


class Resources(strict.Model):
    """What the run needs from the machine."""

    nodes: Annotated[int, Field(ge=1)] = 1
    tasks_per_node: Annotated[int, Field(ge=1)] = 1
    cpus_per_task: Annotated[int, Field(ge=1)]
    gpus_per_task: Annotated[int, Field(ge=0)] = 0
    walltime: Annotated[str, Field(pattern=r"^\d{2,}:[0-5]\d:[0-5]\d$")]


class Recipe(strict.Model):
    """One exact experiment and the result that it must reproduce."""

    schema_: Literal[1] = Field(alias="schema")
    summary: str
    app: Name
    target: Name
    purpose: Purpose
    image: ImageChoice
    data: dict[Name, DataUse] = Field(min_length=1, max_length=1)
    initial: Initial | None = Field(
        default=None, description="checkpoint of another recipe whose weights the run begins with"
    )
    resources: Resources
    launcher: Launcher
    env: dict[Variable, StrictStr] = Field(default_factory=dict)
    args: dict[Option, Argument]
    expected: list[Expectation] = Field(min_length=1)

    @model_validator(mode="after")
    def _launched(self) -> Recipe:
        ranks = self.resources.nodes * self.resources.tasks_per_node
        if (self.launcher == "none") != (ranks == 1):
            raise ValueError(f"launcher: '{self.launcher}' does not start {ranks} tasks")
        if self.launcher == "torchrun" and self.resources.nodes > 1:
            raise ValueError("launcher: torchrun starts the tasks of one node; say srun or mpirun")
        return self

    @model_validator(mode="after")
    def _own_options(self) -> Recipe:
        clash = OWN_OPTIONS & self.args.keys()
        if clash:
            raise ValueError(f"args: {', '.join(sorted(clash))}: set by Trimaran, remove it")
        return self
