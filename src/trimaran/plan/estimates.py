"""Read the memory that an app estimates for its recipes: `estimates.json`."""

from __future__ import annotations

from functools import cache
from typing import Any

from trimaran import paths
from trimaran.files import read_plain
from trimaran.parsing import parse_json
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe

FILE = "estimates.json"
"""File of an app with the estimated memory of its recipes; `scripts/estimates.py` writes it."""

LARGEST = 10_000_000
"""Bytes of the largest file that is read."""


def peak(name: str, recipe: Recipe) -> int | None:
    """Return the bytes of the most loaded rank of a recipe; None if the app does not estimate them.

    Args:
        name: name of the recipe, with or without a point.
        recipe: the recipe; of a series, the point.
    """
    known = _read(recipe.app)
    series = library.definition(name.partition("@")[0]).series
    if series is not None and "@" not in name:
        name = f"{name}@{min(series.points)}"
    if name not in known:
        return None
    return max(int(rank["peak"]) for rank in known[name]["estimate"]["memory"])


@cache
def _read(app: str) -> dict[str, Any]:
    file = paths.app(app) / FILE
    if not file.is_file():
        return {}
    found: dict[str, Any] = parse_json(read_plain(file, LARGEST))
    return found
