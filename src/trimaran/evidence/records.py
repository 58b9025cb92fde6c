"""The files of evidence, as strict models: what does not validate is published nowhere."""

from __future__ import annotations

import datetime as dt
import math
import re
from statistics import median
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from trimaran import strict
from trimaran.recipes.options import Argument
from trimaran.runs.record import GitRecord, JobRecord, RecipeRecord, SignatureRecord, as_list
from trimaran.runs.series import Series
from trimaran.runs.verdict import Row, Verdict
from trimaran.strict import Digest, Sha256
from trimaran.supply.inspection import Examination

Finite = Annotated[float, Field(allow_inf_nan=False)]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2} [+-]\d{4}$")]
"""A date as benchmarks and suites write it: `2026-11-22 05:39 +0000`."""


class Machine(strict.Model):
    """Facts of a machine, without its name."""

    os: str
    kernel: str
    architecture: str | None = None
    processor: str
    cores: Annotated[int, Field(ge=1)]
    memory_gib: Finite
    cpu_flags: list[str] = Field(default_factory=list)
    accelerators: list[str] = Field(default_factory=list)
    python: str | None = None

    @property
    def text(self) -> str:
        """What readers are told: accelerators, or processor and instruction sets."""
        if self.accelerators:
            names = dict.fromkeys(self.accelerators)
            return ", ".join(f"{self.accelerators.count(name)} x {name}" for name in names)
        best = next((flag for flag in _BEST if flag in self.cpu_flags), None)
        return f"{self.cores} cores of {self.processor}" + (f" ({_BEST[best]})" if best else "")


_BEST = {
    "amx_bf16": "AMX, bf16", "avx512_bf16": "AVX-512, bf16", "avx512f": "AVX-512", "avx2": "AVX2",
}
"""Instruction sets that decide how fast a CPU trains, the best first."""


class UsedImage(strict.Model):
    """Which container it was: evidence is of no other run."""

    name: str
    engine: Literal["apptainer", "podman"]
    digest: Digest
    inputs: Sha256
    signature: SignatureRecord | None = None
    publishable: Literal[True]


class UsedFile(strict.Model):
    """A data set, by the SHA-256 of its `dataset.json`, or the file that a run began with."""

    name: str | None = None
    sha256: Sha256


class Resumption(strict.Model):
    """When, where and by which revision a stopped run went on."""

    started: dt.datetime
    trimaran: str
    git: GitRecord
    host: Machine
    nodes: list[Machine] = Field(default_factory=list)


class UsedRecipe(RecipeRecord):
    """Which recipe it was, by content; what was changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Sha256
    changed: dict[str, Argument]


class Execution(strict.Model):
    """`run` of the evidence of a run: what `run.json` says, without folders and names."""

    schema_version: Literal[1, 2]
    status: Literal["completed"]
    trimaran: str
    recipe: UsedRecipe
    image: UsedImage
    modified: Annotated[list[object], Field(default_factory=list, max_length=0)]
    data: Annotated[list[UsedFile], BeforeValidator(as_list)]
    initial: UsedFile | None = None
    git: GitRecord
    job: JobRecord | None = None
    host: Machine
    nodes: list[Machine] = Field(default_factory=list)
    environment: dict[str, object] | None = None
    started: dt.datetime
    resumed: list[Resumption] = Field(default_factory=list)
    ended: dt.datetime
    seconds: Finite
    exit_status: Literal[0]
    files: dict[str, Sha256] = Field(default_factory=dict)


class JudgedRow(Row):
    """One metric: its outcome is what its numbers say, and it is of finite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    measured: Finite | None
    expected: Finite | None = None

    @model_validator(mode="after")
    def _agrees(self) -> JudgedRow:
        value = math.nan if self.measured is None else self.measured
        inside = not (
            math.isnan(value) or (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
        )
        if self.outcome != "NO REFERENCE" and (self.outcome == "PASS") != inside:
            raise ValueError(f"{self.metric}: {self.outcome}, but its numbers say otherwise")
        return self


class Judgement(Verdict):
    """The verdict: as bad as the worst of the metrics that it rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: list[JudgedRow]  # type: ignore[assignment]  # a stricter one

    @model_validator(mode="after")
    def _agrees(self) -> Judgement:
        outcomes = {row.outcome for row in self.rows if row.required}
        worst = next((o for o in ("FAIL", "NO REFERENCE") if o in outcomes), "PASS")
        if self.outcome != (worst if outcomes else "NO REFERENCE"):
            raise ValueError(f"the outcome is {self.outcome}, but that of its rows is {worst}")
        return self


class Curve(Series):
    """One metric over steps and seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunEvidence(strict.Model):
    """One run, as `trimaran report RUN --evidence FILE` writes it."""

    run: Execution
    verdict: Judgement
    curves: list[Curve] = Field(default_factory=list)

    @property
    def day(self) -> dt.date:
        """The day of the run."""
        return self.run.started.date()

    def row(self, metric: str) -> JudgedRow | None:
        """Return what it says of a metric."""
        return next((row for row in self.verdict.rows if row.metric == metric), None)


class ImageEvidence(Examination):
    """One built image, as `trimaran inspect IMAGE --evidence FILE` writes it."""

    digest: Digest
    host: Machine  # type: ignore[assignment]  # without its name

    @property
    def day(self) -> dt.date:
        """The day that it was looked at."""
        return dt.date.fromisoformat(self.date[:10])


class Spread(strict.Model):
    """Values of rounds that were run alternately, with their smallest, median and largest."""

    values: Annotated[list[Finite], Field(min_length=1)]
    min: Finite
    median: Finite
    max: Finite

    @model_validator(mode="after")
    def _agrees(self) -> Spread:
        found = (min(self.values), median(self.values), max(self.values))
        if any(not math.isclose(a, b) for a, b in zip(
            found, (self.min, self.median, self.max), strict=True
        )):
            raise ValueError(f"min, median and max of the values are {found}")
        return self


class Rate(Spread):
    """How fast one contestant was."""

    name: str
    unit: str


class Ratio(Spread):
    """One contestant against another, or a published rate, round by round."""

    text: str
    of: str
    over: str | float
    goal: Finite | None = None

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the goal; None: there is none."""
        return None if self.goal is None else self.median >= self.goal


class BenchmarkMachine(strict.Model):
    """Facts of the machine of a benchmark, and how much others used of it."""

    date: Moment
    command: str
    revision: str | None
    processor: str
    flags: list[str]
    cores: list[int]
    memory_gib: Finite
    gpus: list[str]
    kernel: str
    image: str | None
    python: str
    packages: dict[str, str]
    load_before: Finite
    image_digest: Digest | None
    others: Finite
    stolen: Finite

    @property
    def machine(self) -> Machine:
        """The same as other evidence says it."""
        return Machine(
            os="", kernel=self.kernel, processor=self.processor, cores=len(self.cores),
            memory_gib=self.memory_gib, cpu_flags=self.flags, accelerators=self.gpus,
        )


class Benchmark(strict.Model):
    """Ours against stock baselines, as a program of `benchmarks/` writes it by `--json`."""

    benchmark: str
    machine: BenchmarkMachine
    settings: dict[str, object]
    rates: Annotated[list[Rate], Field(min_length=1)]
    ratios: list[Ratio]
    not_measured: list[str]
    notes: list[str]

    @model_validator(mode="after")
    def _known(self) -> Benchmark:
        names = {rate.name for rate in self.rates}
        for ratio in self.ratios:
            for name in (ratio.of, ratio.over):
                if isinstance(name, str) and name not in names:
                    raise ValueError(f"ratios: '{name}' is no rate of this benchmark")
        return self

    @property
    def day(self) -> dt.date:
        """The day that it ran."""
        return dt.date.fromisoformat(self.machine.date[:10])


class Outcome(strict.Model):
    """A test or a mutant, and what came of it."""

    test: str
    outcome: str
    seconds: Finite
    file: str | None = None
    what: str | None = None


class Suite(strict.Model):
    """A suite that runs rarely: the long tests, or all mutants."""

    date: Moment
    command: str
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}\+?$")]
    host: Machine
    seconds: Finite | None = None
    outcomes: dict[str, int] | None = None
    tests: list[Outcome] = Field(default_factory=list)
    mutants: list[Outcome] = Field(default_factory=list)

    @property
    def day(self) -> dt.date:
        """The day that it ran."""
        return dt.date.fromisoformat(self.date[:10])


DATED = re.compile(r"(\d{4}-\d{2}-\d{2})-[a-z0-9][A-Za-z0-9._-]*\.json")
"""The name of a file of evidence: date, host and what tells it from others of that day."""
