"""Read all evidence below `site/results` into strict models; an invalid file is an error."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Generic, TypeVar

from pydantic import Field, model_validator

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.evidence import content as contents
from trimaran.evidence.check import DATED
from trimaran.parsing import parse_json
from trimaran.provenance.inspection import Examination
from trimaran.report.history import RESULTS
from trimaran.report.run_evidence import Machine, RunEvidence
from trimaran.strict import Digest, Finite

Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2} [+-]\d{4}$")]
"""Date and time in evidence of benchmarks and suites: `2026-11-22 05:39 +0000`."""


class ImageEvidence(Examination):
    """One built image, as `trimaran inspect IMAGE --evidence FILE` writes it."""

    digest: Digest
    host: Machine  # type: ignore[assignment]  # HostFacts without the host name

    @property
    def day(self) -> dt.date:
        """The date on which the image was inspected."""
        return dt.date.fromisoformat(self.date[:10])


class Spread(strict.Model):
    """Values of a quantity, one per round, with their minimum, median and maximum."""

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
        of: contestant in the numerator; if it is a list, the fastest contestant is used.
        over: contestant, or list of contestants, in the denominator; or a published rate.
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
        """The facts of the machine in the format that the evidence of runs uses."""
        return Machine(
            os="", kernel=self.kernel, processor=self.processor, cores=len(self.cores),
            memory_gib=self.memory_gib, cpu_flags=self.flags, accelerators=self.gpus,
        )


class Benchmark(strict.Model):
    """A benchmark against stock baselines, as programs of `benchmarks/` write it with `--json`."""

    benchmark: str
    machine: BenchmarkMachine
    settings: dict[str, object]
    rates: Annotated[list[Rate], Field(min_length=1)]
    ratios: list[Ratio]
    not_measured: list[str]
    notes: list[str]
    table: list[list[str]] | None = None

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
        """The date on which the benchmark ran."""
        return dt.date.fromisoformat(self.machine.date[:10])


class Outcome(strict.Model):
    """The outcome of a test or a mutant."""

    test: str
    outcome: str
    seconds: Finite
    file: str | None = None
    what: str | None = None


class Suite(strict.Model):
    """The results of a suite that runs rarely: long tests, fault injection or all mutants."""

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
        """The date on which the suite ran."""
        return dt.date.fromisoformat(self.date[:10])


D = TypeVar("D", Benchmark, ImageEvidence, RunEvidence, Suite)


@dataclass(frozen=True)
class Piece(Generic[D]):
    """One file of evidence; `path` is relative to the repository."""

    path: str
    content: D


@dataclass(frozen=True)
class AllEvidence:
    """All evidence; each list begins with the newest file.

    Attributes:
        runs: runs by name of the recipe; `app/recipe@4` is the run of size 4 of a scaling series.
        images: images by name, from all engines.
        benchmarks: benchmarks by name.
        suites: suites by kind: `faults`, `mutants` and `tests`.
    """

    runs: dict[str, list[Piece[RunEvidence]]]
    images: dict[str, list[Piece[ImageEvidence]]]
    benchmarks: dict[str, list[Piece[Benchmark]]]
    suites: dict[str, list[Piece[Suite]]]


def read() -> AllEvidence:
    """Read all evidence of the checkout.

    Raises:
        UsageError: files are invalid or in the wrong place; the message lists each fault with its
            line.
    """
    faults: list[str] = []
    shelf = AllEvidence({}, {}, {}, {})
    files = [path for path in (paths.repository() / RESULTS).rglob("*")
             if path.is_file() and path.name != contents.LISTED]
    unhashed = contents.listed()
    for path in sorted(files, key=lambda path: (path.name, path), reverse=True):
        try:
            _add(shelf, path, unhashed)
        except UsageError as error:
            faults.append(error.message)
    if faults:
        raise UsageError(
            "\n".join(reversed(faults)), code="evidence-invalid",
            hint="do not edit evidence: write it again (trimaran evidence add, inspect), or remove"
            " it",
        )
    return shelf


def _add(shelf: AllEvidence, path: Path, unhashed: frozenset[str]) -> None:
    """Read one file, and add it to the evidence of the kind that its folder determines.

    Older files with evidence of runs do not contain a hash of their content. Therefore `unhashed`
    lists the SHA-256 of each such file, so that a change of the file is noticed.
    """
    kind, *rest = path.relative_to(paths.repository() / RESULTS).parts[:-1] or ("",)
    if kind == "benchmarks" and not rest:
        _put(shelf.benchmarks, path, Benchmark, lambda one: one.benchmark)
    elif kind in ("faults", "mutants", "tests") and not rest:
        _put(shelf.suites, path, Suite, lambda one: kind)
    elif kind == "images" and len(rest) == 1:
        _put(shelf.images, path, ImageEvidence, lambda one: one.image, folder=rest[0])
    elif len(rest) == 1:
        _put(shelf.runs, path, RunEvidence, lambda one: one.run.recipe.name,
             folder=f"{kind}/{rest[0]}")
        _refuse_edited(path, unhashed)
    else:
        raise UsageError(f"{path}:1: no kind of evidence belongs into this folder",
                         code="evidence-invalid")


def _refuse_edited(path: Path, unhashed: frozenset[str]) -> None:
    """Check that the evidence of a run has the hash that is stored in it.

    Raises:
        UsageError: the file was edited, or it has no hash and is not in `unhashed`, the SHA-256 of
            the files from the time before evidence had hashes.
    """
    raw = path.read_bytes()
    if edited := contents.fault(parse_json(raw), raw, unhashed):
        raise UsageError(f"{path}:1: {contents.HASH}: {edited}", code="evidence-invalid")


def _put(
    shelf: dict[str, list[Piece[D]]], path: Path, model: type[D], name: Callable[[D], str],
    folder: str | None = None,
) -> None:
    """Read a file as `model`, and add it to `shelf`.

    Args:
        shelf: evidence of one kind, by name.
        path: the file.
        model: model of its content.
        name: function that returns the name of the evidence from the content.
        folder: the name that `name` must return, because the file is in the folder of this name;
            None: any name.

    Raises:
        UsageError: the content is invalid, or the file name or folder contradicts it.
    """
    named = DATED.fullmatch(path.name)
    if named is None:
        raise UsageError(f"{path}:1: the name of the file is not DATE-HOST.json",
                         code="evidence-invalid")
    content = strict.load_json(model, path)
    what, day = name(content), content.day.isoformat()
    if day != named[1]:
        raise UsageError(f"{path}:1: the evidence is of {day}, but the file name has {named[1]}",
                         code="evidence-invalid")
    if folder is not None and what.partition("@")[0] != folder:
        raise UsageError(f"{path}:1: the evidence is of {what}, but the folder is {folder}",
                         code="evidence-invalid")
    piece = Piece(str(path.relative_to(paths.repository())), content)
    shelf.setdefault(what, []).append(piece)
