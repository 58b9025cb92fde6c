"""Strict models of the files of evidence."""

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
"""Date and time in evidence of benchmarks and suites: `2026-11-22 05:39 +0000`."""


class ImageEvidence(Examination):
    """One built image, as `trimaran inspect IMAGE --evidence FILE` writes it."""

    digest: Digest
    host: Machine  # type: ignore[assignment]  # HostFacts without the host name

    @property
    def day(self) -> dt.date:
        """The day of the examination."""
        return dt.date.fromisoformat(self.date[:10])


class Spread(strict.Model):
    """Values of rounds that were run alternately, with their minimum, median and maximum."""

    values: Annotated[list[Finite], Field(min_length=1)]
    min: Finite
    median: Finite
    max: Finite

    @model_validator(mode="after")
    def _agrees(self) -> Spread:
        computed = (min(self.values), median(self.values), max(self.values))
        if any(not math.isclose(a, b) for a, b in zip(
            computed, (self.min, self.median, self.max), strict=True
        )):
            raise ValueError(f"min, median and max of the values are {computed}")
        return self


class Rate(Spread):
    """The rate of one contestant of a benchmark."""

    name: str
    unit: str


class Ratio(Spread):
    """The ratio of two rates in each round.

    Attributes:
        text: description of the ratio.
        of: contestant in the numerator; of several, the fastest one counts.
        over: contestant in the denominator, or several, or a published rate.
        goal: smallest median that meets the goal; None: no goal.
    """

    text: str
    of: str | list[str]
    over: str | list[str] | float
    goal: Finite | None = None

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the goal; None without a goal."""
        return None if self.goal is None else self.median >= self.goal


class BenchmarkMachine(strict.Model):
    """Facts of the machine of a benchmark, and the load by other processes."""

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
        """The same facts in the form of other evidence."""
        return Machine(
            os="", kernel=self.kernel, processor=self.processor, cores=len(self.cores),
            memory_gib=self.memory_gib, cpu_flags=self.flags, accelerators=self.gpus,
        )


class Benchmark(strict.Model):
    """A benchmark against stock baselines, as a program of `benchmarks/` writes with `--json`."""

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
                    raise ValueError(f"ratios: '{name}' is not a rate of this benchmark")
        return self

    @property
    def day(self) -> dt.date:
        """The day of the benchmark."""
        return dt.date.fromisoformat(self.machine.date[:10])


class Outcome(strict.Model):
    """The outcome of a test or a mutant."""

    test: str
    outcome: str
    seconds: Finite
    file: str | None = None
    what: str | None = None


class Suite(strict.Model):
    """The results of a suite that runs rarely: the long tests, or all mutants."""

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
        """The day of the suite."""
        return dt.date.fromisoformat(self.date[:10])


DATED = re.compile(r"(\d{4}-\d{2}-\d{2})-[a-z0-9][A-Za-z0-9._-]*\.json")
"""File name of evidence: date, host, and a suffix if there are several of one day."""
