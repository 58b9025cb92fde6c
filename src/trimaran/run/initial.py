"""The file that a training starts from: a checkpoint of another recipe, or published weights."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from trimaran.data import weights
from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.launch.specification import Mount
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Reporter

INSIDE = "/initial"
"""Path of the file in the container, without its suffix."""

OTHER_RUN = Path("/RUN/checkpoints")
"""Placeholder in a printed command for the checkpoints of the first run."""


class InitialRecord(BaseModel):
    """The file that a run started from."""

    path: str
    sha256: str


def check(recipe: RecipeFile, given: Path | None, *, to_print: bool = False) -> None:
    """Check that `given` is the file that the recipe starts from.

    Args:
        recipe: the recipe.
        given: value of `--initial`.
        to_print: whether the command is only printed, which needs no file; see `planned`.

    Raises:
        UsageError: the file is missing or another one, or the recipe starts from no file.
    """
    asked = recipe.recipe.initial
    if asked is None:
        if given is not None:
            raise UsageError(
                f"--initial {given}: {recipe.name} does not start from a checkpoint",
                code="arguments-conflict",
                hint="leave --initial out, or run the recipe of the second stage",
            )
        return
    if asked.weights is not None:
        known = weights.load(asked.weights)
        if given is not None and not known.content.is_in(given):
            raise UsageError(f"--initial {given} is not the file of {asked.weights}",
                             code="initial-invalid",
                             hint="leave --initial out: the weights are downloaded")
        return
    if given is None and to_print:
        return
    what = f"{recipe.name} starts from the checkpoint of {' or '.join(asked.files.values())}"
    files = " or ".join(f"RUN/checkpoints/{name}" for name in asked.files)
    hint = f"give --initial {files}, of a run of that recipe"
    if given is None:
        raise UsageError(what, code="initial-missing", hint=hint)
    if not given.is_file():
        raise UsageError(f"--initial {given}: no such file", code="file-missing", hint=hint)
    if given.name not in asked.files:
        raise UsageError(f"--initial {given}: {what}", code="initial-invalid", hint=hint)


def prepare(
    recipe: RecipeFile, given: Path | None, *, offline: bool, reporter: Reporter
) -> Path | None:
    """Return the file that the run starts from, after downloading weights if needed.

    Raises:
        RunError: no source supplies the weights.
        Interrupted: the user stopped the download.
    """
    asked = recipe.recipe.initial
    if given is not None or asked is None or asked.weights is None:
        return given
    return weights.get(weights.load(asked.weights), offline=offline, reporter=reporter)


def planned(recipe: RecipeFile, given: Path | None) -> tuple[Path | None, list[str]]:
    """Return the file that the run would start from, and the steps that are missing for it."""
    asked = recipe.recipe.initial
    if given is not None or asked is None:
        return given, []
    if asked.weights is None:
        files = " or ".join(asked.files)
        return OTHER_RUN / next(iter(asked.files)), [
            f"a run of {asked.recipe}; then --initial RUN/checkpoints/{files}, in place of"
            f" {OTHER_RUN}"
        ]
    known = weights.load(asked.weights)
    path = weights.place(known)
    exists = known.content.is_in(path)
    return path, [] if exists else [f"weights {known.name}: the run downloads them"]


def mounts(given: Path | None) -> list[Mount]:
    """Return the read-only mount of the file in the container."""
    return [Mount(str(given.absolute()), INSIDE + given.suffix)] if given else []


def record(given: Path | None) -> InitialRecord | None:
    """Return the entry of the file in `run.json`."""
    return InitialRecord(path=str(given.absolute()), sha256=sha256(given)) if given else None
