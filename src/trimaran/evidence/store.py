"""Where evidence lies: `site/results`, read as a whole; a file that is wrong stops the reading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.evidence.records import DATED, Benchmark, ImageEvidence, Suite
from trimaran.report.history import RESULTS
from trimaran.report.run_evidence import RunEvidence

D = TypeVar("D", Benchmark, ImageEvidence, RunEvidence, Suite)


@dataclass(frozen=True)
class Piece(Generic[D]):
    """One file of evidence; `path` is below the repository, as pages name it."""

    path: str
    content: D


@dataclass(frozen=True)
class Shelf:
    """All evidence, each list with the newest first.

    Attributes:
        runs: by recipe, of a series by its point: `app/recipe@4`.
        images: by image, those of Apptainer and of others.
        benchmarks: by benchmark.
        suites: `faults`, `mutants` and `tests`.
    """

    runs: dict[str, list[Piece[RunEvidence]]]
    images: dict[str, list[Piece[ImageEvidence]]]
    benchmarks: dict[str, list[Piece[Benchmark]]]
    suites: dict[str, list[Piece[Suite]]]


def read() -> Shelf:
    """Read all evidence of the checkout.

    Raises:
        UsageError: files that do not validate, each with its line and the reason.
    """
    faults: list[str] = []
    shelf = Shelf({}, {}, {}, {})
    files = [path for path in (paths.repository() / RESULTS).rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.name, path), reverse=True):
        try:
            _add(shelf, path)
        except UsageError as error:
            faults.append(error.message)
    if faults:
        raise UsageError(
            "\n".join(reversed(faults)),
            hint="evidence is not edited: write it anew (trimaran report, inspect), or remove it",
        )
    return shelf


def _add(shelf: Shelf, path: Path) -> None:
    """Read one file, and put it where its folder says that it belongs."""
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
    else:
        raise UsageError(f"{path}:1: no evidence is known that lies in such a folder")


def _put(
    shelf: dict[str, list[Piece[D]]], path: Path, model: type[D], name: Callable[[D], str],
    folder: str | None = None,
) -> None:
    """Read a file as `model`; its name says the day, and its folder what it is evidence of.

    Raises:
        UsageError: it does not validate, or names say something else.
    """
    named = DATED.fullmatch(path.name)
    if named is None:
        raise UsageError(f"{path}:1: the name of the file is not DATE-HOST.json")
    content = strict.load_json(model, path)
    what, day = name(content), content.day.isoformat()
    if day != named[1]:
        raise UsageError(f"{path}:1: it is of {day}, its name says {named[1]}")
    if folder is not None and what.partition("@")[0] != folder:
        raise UsageError(f"{path}:1: it is of {what}, its folder says {folder}")
    found = Piece(str(path.relative_to(paths.repository())), content)
    shelf.setdefault(what, []).append(found)
