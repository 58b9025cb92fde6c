"""Model the evidence of a run strictly, so that only valid evidence is published."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, model_validator

from trimaran import strict
from trimaran.architectures import MACHINES
from trimaran.engines import selection
from trimaran.hostfacts import HostFacts
from trimaran.report import variants
from trimaran.report.panels import DIGITS, KeptCurve
from trimaran.report.variants import RunVariant
from trimaran.run import carriers
from trimaran.run.carriers import FabricRecord
from trimaran.run.record import GitRecord, JobRecord, PublishedImage, RecipeRecord, as_list
from trimaran.run.site_settings import SiteSettings
from trimaran.site_file import FabricName
from trimaran.strict import Finite, Sha256
from trimaran.verdict.metrics import Row, Verdict, within, worst


class Machine(strict.Model):
    """The facts of a machine, without its name."""

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
        """Return the facts of the machine `host`, except its host name; no value is validated."""
        return cls.model_construct(**host.model_dump(exclude={"hostname"}))

    @property
    def text(self) -> str:
        """A short description: the accelerators, or the processor and its best instruction set.

        An architecture other than x86_64 is added.
        """
        other = "" if self.architecture in (None, "x86_64") else f", {self.architecture}"
        if self.accelerators:
            names = dict.fromkeys(self.accelerators)
            known = [f"{self.accelerators.count(name)} x {name}" for name in names]
            return ", ".join(known) + other
        best = next((name for flags, name in _BEST if flags <= set(self.cpu_flags)), None)
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{cores} of {self.processor}" + (f" ({best})" if best else "") + other


def describe(machines: Sequence[Machine]) -> str:
    """Return a short description of the nodes of a run, with their number and their kinds."""
    kinds = " or ".join(dict.fromkeys(machine.text for machine in machines))
    return f"{len(machines)} nodes, each {kinds}" if len(machines) > 1 else kinds


_BEST = (
    ({"amx_bf16"}, "AMX, bf16"), ({"avx512_bf16"}, "AVX-512, bf16"), ({"avx512f"}, "AVX-512"),
    ({"avx2"}, "AVX2"),
    ({"sve2", "bf16"}, "SVE2, bf16"), ({"sve", "bf16"}, "SVE, bf16"), ({"bf16"}, "NEON, bf16"),
    ({"sve"}, "SVE"), ({"asimd"}, "NEON"),
)
"""Instruction sets of a CPU and their name in descriptions, the fastest ones first."""


def _container(engine: str) -> str:
    if not selection.is_container(engine):
        known = ", ".join(filter(selection.is_container, selection.ENGINES))
        raise ValueError(f"{engine} is not a container engine (known: {known})")
    return engine


class UsedImage(PublishedImage, frozen=True):
    """The image of the run; only a run in a container can be evidence."""

    engine: Annotated[str, AfterValidator(_container)]
    publishable: Literal[True]


class UsedFile(strict.Model):
    """A data set with the SHA-256 of its `dataset.json`, or the file with initial weights."""

    name: str | None = None
    sha256: Sha256


class Resumption(strict.Model):
    """One resumption of a stopped run: its time, machines and revision."""

    started: AwareDatetime
    trimaran: str
    git: GitRecord
    host: Machine
    nodes: list[Machine] = Field(default_factory=list)


class UsedRecipe(RecipeRecord, extra="forbid"):
    """The recipe of the run, with its SHA-256 and the changed arguments."""

    sha256: Sha256


class UsedSite(strict.Model):
    """The settings that the site file added to the run, without folders and other private values.

    A setting that cannot change the result is recorded with its value. Of a setting that can change
    it, only the name is recorded, in `changes`, because the value may be private.
    """

    flags: list[str]
    env: dict[str, str]
    binds: Annotated[dict[str, str], Field(max_length=0)]
    devices: list[str] = Field(default_factory=list)
    fabric: FabricName | None = None
    libraries: list[str] = Field(default_factory=list)
    changes: list[str]

    @model_validator(mode="after")
    def _is_neutral(self) -> UsedSite:
        if others := SiteSettings(flags=self.flags, env=self.env).changes:
            raise ValueError(f"{', '.join(others)}: not neutral; only the name may be published")
        return self


class Execution(strict.Model):
    """The key `run` of evidence: the content of `run.json` without folders and names of hosts.

    `command` has the words of the command in the container; None in older evidence.
    """

    schema_version: Literal[1, 2]
    status: Literal["completed"]
    trimaran: str
    recipe: UsedRecipe
    image: UsedImage
    command: list[str] | None = None
    modified: Annotated[list[object], Field(default_factory=list, max_length=0)]
    data: Annotated[list[UsedFile], BeforeValidator(as_list)]
    initial: UsedFile | None = None
    git: GitRecord
    site: UsedSite | None = None
    fabric: FabricRecord | None = None
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
        """A short description of the machines of the run."""
        return describe([self.host, *self.nodes])

    def version_of(self, framework: str) -> str | None:
        """Return the version of a framework that the app recorded, or None.

        The name of the package may have a suffix for the processors, such as `tensorflow-cpu`.
        """
        packages = (self.environment or {}).get("packages")
        known = packages if isinstance(packages, dict) else {}
        named = sorted(name for name in known if name.startswith(f"{framework}-"))
        found = [known[name] for name in (framework, *named) if isinstance(known.get(name), str)]
        return found[0] if found else None


class JudgedRow(Row, extra="forbid"):
    """One metric of a verdict; its numbers are finite, and determine its outcome."""

    measured: Finite | None
    expected: Finite | None = None

    @model_validator(mode="after")
    def _agrees(self) -> JudgedRow:
        inside = self.measured is not None and within(self.measured, self.low, self.high)
        inside = inside and self.fault is None
        if self.outcome != "NO REFERENCE" and (self.outcome == "PASS") != inside:
            raise strict.contradiction(
                f"{self.metric}: the outcome {self.outcome} contradicts its numbers")
        return self


class Judgement(Verdict, extra="forbid"):
    """The verdict, whose outcome must be the worst outcome of its required metrics."""

    rows: list[JudgedRow]  # type: ignore[assignment]  # a stricter type

    @model_validator(mode="after")
    def _agrees(self) -> Judgement:
        of_rows = worst([row.outcome for row in self.rows if row.required])
        if self.outcome != of_rows:
            raise strict.contradiction(
                f"the outcome is {self.outcome}, but that of its rows is {of_rows}")
        return self


class Curve(KeptCurve, extra="forbid"):
    """The curve of one metric over steps and seconds."""


_ROUNDED = 10.0 ** (1 - DIGITS)
"""Relative difference that rounding to `DIGITS` significant digits can cause."""


class RunEvidence(strict.Model):
    """The evidence of one run, as `trimaran evidence add RUN` writes it.

    Attributes:
        schema_: version of the file format; None in older evidence.
        run: the run, without private facts.
        verdict: the verdict of the run.
        curves: the curves of the run.
        variant: the variant of the app that the run used, with the metrics by which variants are
            compared; None if the app has no variants.
        sha256: hash of all other keys (`evidence/content.py`); None in older evidence.
    """

    schema_: Literal[1] | None = Field(default=None, alias="schema")
    run: Execution
    verdict: Judgement
    curves: list[Curve] = Field(default_factory=list)
    variant: RunVariant | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _has_a_reference(self) -> RunEvidence:
        if self.run.site and self.run.site.changes and self.verdict.outcome != "NO REFERENCE":
            raise strict.contradiction(
                f"the outcome is {self.verdict.outcome}, but the site file changed the experiment:"
                f" {', '.join(self.run.site.changes)}")
        used, slow = self.run.fabric, carriers.fault(self.run.fabric)
        if used and used.wanted != (self.run.site and self.run.site.fabric):
            raise strict.contradiction(f"fabric: the site file does not name {used.wanted}")
        for row in self.verdict.rows:
            if row.fault is not None and slow is None:
                raise strict.contradiction(
                    f"{row.metric}: the networks of the run do not show the fault")
        return self

    @model_validator(mode="after")
    def _agrees_with_its_curves(self) -> RunEvidence:
        ends = {curve.metric: curve.points[-1][2] for curve in self.curves if curve.points}
        for row in self.verdict.rows:
            last = ends.get(row.metric)
            if row.at == "end" and row.measured is not None and last is not None and (
                not math.isclose(row.measured, last, rel_tol=_ROUNDED)
            ):
                raise strict.contradiction(f"{row.metric}: the value {row.measured:g} is not the"
                                           f" last point of its curve, {last:g}")
        return self

    @model_validator(mode="after")
    def _has_an_image_for_its_machines(self) -> RunEvidence:
        if self.run.image.architecture is None:
            return self
        machine = MACHINES[self.run.image.architecture]
        machines = [self.run.host, *self.run.nodes]
        machines += [one for part in self.run.resumed for one in (part.host, *part.nodes)]
        for one in machines:
            if one.architecture not in (None, machine):
                raise strict.contradiction(f"image: it is for {machine}, but a machine of the run"
                                           f" is {one.architecture}")
        return self

    @model_validator(mode="after")
    def _ended_after_its_start(self) -> RunEvidence:
        if self.run.ended < self.run.started:
            raise strict.contradiction("the run ended before it started")
        return self

    @model_validator(mode="after")
    def _has_a_possible_variant(self) -> RunEvidence:
        if self.variant is not None and (
            found := variants.fault(self.variant, self.run.recipe, self.verdict.rows)
        ):
            raise strict.contradiction(f"variant: {found}")
        return self

    @property
    def day(self) -> dt.date:
        """The date on which the run started."""
        return self.run.started.date()

    def row(self, metric: str, at: str | None = None) -> JudgedRow | None:
        """Return the row of `metric` in the verdict, or None.

        The verdict may have several rows of a metric, such as its value at the end and its best
        value. `at` selects one of them (`end`, `best`); without `at`, the first row is returned.
        """
        return next((row for row in self.verdict.rows
                     if row.metric == metric and at in (None, row.at)), None)
