"""The checkpoint that a second stage begins with: which one a recipe asks for, and what it got."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from trimaran.engines import Bind
from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.recipes.library import RecipeFile

INSIDE = "/initial.npz"
"""Where the checkpoint is in the container."""


class InitialRecord(BaseModel):
    """Which checkpoint a run began with."""

    path: str
    sha256: str


def check(recipe: RecipeFile, given: Path | None) -> None:
    """Refuse a checkpoint that the recipe does not ask for, or a missing or other one.

    Raises:
        UsageError: says which checkpoint the recipe begins with.
    """
    asked = recipe.recipe.initial
    if asked is None:
        if given is not None:
            raise UsageError(
                f"--initial {given}: {recipe.name} begins with no checkpoint",
                hint="leave --initial out, or run the recipe of the second stage",
            )
        return
    what = f"{recipe.name} begins with the checkpoint of step {asked.step} of {asked.recipe}"
    hint = f"give --initial RUN/checkpoints/{asked.file}, of a run of that recipe"
    if given is None:
        raise UsageError(what, hint=hint)
    if not given.is_file():
        raise UsageError(f"--initial {given}: no such file", hint=hint)
    if given.name != asked.file:
        raise UsageError(f"--initial {given}: {what}", hint=hint)


def bind(given: Path | None) -> list[Bind]:
    """Return what has to be shown in the container: the checkpoint, read-only."""
    return [Bind(given.absolute(), INSIDE)] if given else []


def record(given: Path | None) -> InitialRecord | None:
    """Return what `run.json` says of the checkpoint."""
    return InitialRecord(path=str(given.absolute()), sha256=sha256(given)) if given else None
