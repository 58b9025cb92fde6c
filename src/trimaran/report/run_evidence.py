"""Evidence of a run as a strict model: what does not validate is published nowhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, model_validator

from trimaran import strict
from trimaran.engines import selection
from trimaran.hostfacts import HostFacts
from trimaran.report.curve_points import KeptCurve
from trimaran.run.record import GitRecord, JobRecord, PublishedImage, RecipeRecord, as_list
from trimaran.run.site_settings import SiteSettings
from trimaran.strict import Sha256
from trimaran.verdict.rules import Row, Verdict, within, worst

Finite = Annotated[float, Field(allow_inf_nan=False)]


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

    @classmethod
    def of(cls, host: HostFacts) -> Machine:
        """Return what evidence keeps of a host; that of a run is taken as it is."""
        return cls.model_construct(**host.model_dump(exclude={"hostname"}))

    @property
    def text(self) -> str:
        """What readers are told: accelerators, or processor and instruction sets."""
        if self.accelerators:
            names = dict.fromkeys(self.accelerators)
            return ", ".join(f"{self.accelerators.count(name)} x {name}" for name in names)
        best = next((flag for flag in _BEST if flag in self.cpu_flags), None)
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{cores} of {self.processor}" + (f" ({_BEST[best]})" if best else "")


def describe(machines: Sequence[Machine]) -> str:
    """Return in a few words what a run was on: how many nodes, and of which kind."""
    kinds = " or ".join(dict.fromkeys(one.text for one in machines))
    return f"{len(machines)} nodes, each {kinds}" if len(machines) > 1 else kinds


_BEST = {
    "amx_bf16": "AMX, bf16", "avx512_bf16": "AVX-512, bf16", "avx512f": "AVX-512", "avx2": "AVX2",
}
"""Instruction sets that decide how fast a CPU trains, the best first."""


def _container(engine: str) -> str:
    if not selection.is_container(engine):
        known = ", ".join(filter(selection.is_container, selection.ENGINES))
        raise ValueError(f"{engine} is no engine of containers: {known}")
    return engine


class UsedImage(PublishedImage, frozen=True):
    """The image of the run; only the run of a container is evidence."""

    engine: Annotated[str, AfterValidator(_container)]
    publishable: Literal[True]


class UsedFile(strict.Model):
    """A data set, by the SHA-256 of its `dataset.json`, or the file that a run began with."""

    name: str | None = None
    sha256: Sha256


class Resumption(strict.Model):
    """When, where and by which revision a stopped run went on."""

    started: AwareDatetime
    trimaran: str
    git: GitRecord
    host: Machine
    nodes: list[Machine] = Field(default_factory=list)


class UsedRecipe(RecipeRecord, extra="forbid"):
    """Which recipe it was, by content; what was changed."""

    sha256: Sha256


class UsedSite(strict.Model):
    """What the site file added that is neutral, without folders; `changes` names the rest."""

    flags: list[str]
    env: dict[str, str]
    binds: Annotated[dict[str, str], Field(max_length=0)]
    devices: list[str] = Field(default_factory=list)
    changes: list[str]

    @model_validator(mode="after")
    def _is_neutral(self) -> UsedSite:
        if others := SiteSettings(flags=self.flags, env=self.env).changes:
            raise ValueError(f"{', '.join(others)}: not neutral, and told whole")
        return self


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
    site: UsedSite | None = None
    job: JobRecord | None = None
    host: Machine
    nodes: list[Machine] = Field(default_factory=list)
    environment: dict[str, object] | None = None
    started: AwareDatetime
    resumed: list[Resumption] = Field(default_factory=list)
    ended: AwareDatetime
    seconds: Finite
    exit_status: Literal[0]
    files: dict[str, Sha256] = Field(default_factory=dict)

    @property
    def machine(self) -> str:
        """What it was on, in a few words."""
        return describe([self.host, *self.nodes])


class JudgedRow(Row, extra="forbid"):
    """One metric: its outcome is what its numbers say, and it is of finite numbers."""

    measured: Finite | None
    expected: Finite | None = None

    @model_validator(mode="after")
    def _agrees(self) -> JudgedRow:
        inside = self.measured is not None and within(self.measured, self.low, self.high)
        if self.outcome != "NO REFERENCE" and (self.outcome == "PASS") != inside:
            raise ValueError(f"{self.metric}: {self.outcome}, but its numbers say otherwise")
        return self


class Judgement(Verdict, extra="forbid"):
    """The verdict: as bad as the worst of the metrics that it rests on."""

    rows: list[JudgedRow]  # type: ignore[assignment]  # a stricter one

    @model_validator(mode="after")
    def _agrees(self) -> Judgement:
        found = worst([row.outcome for row in self.rows if row.required])
        if self.outcome != found:
            raise ValueError(f"the outcome is {self.outcome}, but that of its rows is {found}")
        return self


class Curve(KeptCurve, extra="forbid"):
    """One metric over steps and seconds."""


class RunEvidence(strict.Model):
    """One run, as `trimaran report RUN --evidence FILE` writes it."""

    run: Execution
    verdict: Judgement
    curves: list[Curve] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_a_reference(self) -> RunEvidence:
        if self.run.site and self.run.site.changes and self.verdict.outcome != "NO REFERENCE":
            raise ValueError(f"the outcome is {self.verdict.outcome}, but the site file changed the"
                             f" experiment: {', '.join(self.run.site.changes)}")
        return self

    @property
    def day(self) -> dt.date:
        """The day of the run."""
        return self.run.started.date()

    def row(self, metric: str) -> JudgedRow | None:
        """Return what it says of a metric."""
        return next((row for row in self.verdict.rows if row.metric == metric), None)
