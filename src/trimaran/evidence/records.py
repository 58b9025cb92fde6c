"""The files of evidence, as strict models: what does not validate is published nowhere."""

from __future__ import annotations

import datetime as dt
import math
import re
from statistics import median
from typing import Annotated

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.provenance.inspection import Examination
from trimaran.report.run_evidence import Finite, Machine
from trimaran.strict import Digest

Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2} [+-]\d{4}$")]
"""A date as benchmarks and suites write it: `2026-11-22 05:39 +0000`."""


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
    """A contestant, or the fastest of several, against others or a published rate, by rounds."""

    text: str
    of: str | list[str]
    over: str | list[str] | float
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
            sides = [[side] if isinstance(side, str) else side
                     for side in (ratio.of, ratio.over) if not isinstance(side, float)]
            for name in (name for side in sides for name in side):
                if name not in names:
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
