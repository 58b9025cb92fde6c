"""What a training begins with: a checkpoint of another recipe, or published weights."""

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
"""Where it is in the container; the name ends as that of the file does."""

OTHER_RUN = Path("/RUN/checkpoints")
"""In a command that is only printed: the checkpoints of the run that comes first."""


class InitialRecord(BaseModel):
    """What a run began with."""

    path: str
    sha256: str


def check(recipe: RecipeFile, given: Path | None, *, to_print: bool = False) -> None:
    """Refuse a file that the recipe does not ask for, a missing or another one.

    Args:
        to_print: the command is only printed, which needs no file; see `planned`.

    Raises:
        UsageError: says what the recipe begins with.
    """
    asked = recipe.recipe.initial
    if asked is None:
        if given is not None:
            raise UsageError(
                f"--initial {given}: {recipe.name} begins with no checkpoint",
                hint="leave --initial out, or run the recipe of the second stage",
            )
        return
    if asked.weights is not None:
        known = weights.load(asked.weights)
        if given is not None and not known.content.is_in(given):
            raise UsageError(f"--initial {given} is not the file of {asked.weights}",
                             hint="leave --initial out: it is fetched")
        return
    if given is None and to_print:
        return
    what = f"{recipe.name} begins with the checkpoint of {' or '.join(asked.files.values())}"
    files = " or ".join(f"RUN/checkpoints/{name}" for name in asked.files)
    hint = f"give --initial {files}, of a run of that recipe"
    if given is None:
        raise UsageError(what, hint=hint)
    if not given.is_file():
        raise UsageError(f"--initial {given}: no such file", hint=hint)
    if given.name not in asked.files:
        raise UsageError(f"--initial {given}: {what}", hint=hint)


def prepare(
    recipe: RecipeFile, given: Path | None, *, offline: bool, reporter: Reporter
) -> Path | None:
    """Return the file that the run begins with: the given one, or fetched weights.

    Raises:
        RunError: no source gives the weights.
        Interrupted: on Ctrl-C.
    """
    asked = recipe.recipe.initial
    if given is not None or asked is None or asked.weights is None:
        return given
    return weights.get(weights.load(asked.weights), offline=offline, reporter=reporter)


def planned(recipe: RecipeFile, given: Path | None) -> tuple[Path | None, list[str]]:
    """Return the file that the run would begin with, and what is missing for it."""
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
    there = known.content.is_in(path)
    return path, [] if there else [f"weights {known.name}: the run fetches them"]


def mounts(given: Path | None) -> list[Mount]:
    """Return what has to be shown in the container: the file, read-only."""
    return [Mount(str(given.absolute()), INSIDE + given.suffix)] if given else []


def record(given: Path | None) -> InitialRecord | None:
    """Return what `run.json` says of the file."""
    return InitialRecord(path=str(given.absolute()), sha256=sha256(given)) if given else None
