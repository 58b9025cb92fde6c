"""Read all evidence below `site/results`; an invalid file is an error."""

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
    """One file of evidence; `path` is relative to the repository."""

    path: str
    content: D


@dataclass(frozen=True)
class AllEvidence:
    """All evidence; each list begins with the newest file.

    Attributes:
        runs: runs by recipe; a point of a series is `app/recipe@4`.
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
    files = [path for path in (paths.repository() / RESULTS).rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: (path.name, path), reverse=True):
        try:
            _add(shelf, path)
        except UsageError as error:
            faults.append(error.message)
    if faults:
        raise UsageError(
            "\n".join(reversed(faults)), code="evidence-invalid",
            hint="do not edit evidence: write it again (trimaran report, inspect), or remove it",
        )
    return shelf


def _add(shelf: AllEvidence, path: Path) -> None:
    """Read one file, and add it to the shelf under the kind that its folder names."""
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
        raise UsageError(f"{path}:1: no kind of evidence belongs into this folder",
                         code="evidence-invalid")


def _put(
    shelf: dict[str, list[Piece[D]]], path: Path, model: type[D], name: Callable[[D], str],
    folder: str | None = None,
) -> None:
    """Read a file as `model`, and add it to the shelf.

    Args:
        shelf: evidence of one kind, by name.
        path: the file.
        model: model of its content.
        name: function that returns the name from the content.
        folder: name that the folder of the file stands for; None: not checked.

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
