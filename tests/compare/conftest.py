"""A fixture that makes runs of one small recipe to compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import comparable
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile


@pytest.fixture
def make(recipe: RecipeFile, own_place: Path) -> comparable.Make:
    """Return a function that creates a completed run in a folder with the given name."""

    def leave(
        name: str, accuracies: Sequence[float] = (0.9,), speeds: Sequence[float] = (1000.0,),
        *, size: int | None = None, cores: int | None = None, joules: float | None = None,
        **changed: Argument,
    ) -> Path:
        return comparable.leave(
            own_place / name, recipe, accuracies, speeds, size, cores, changed, joules
        )

    return leave
