"""Read the file `estimates.json`, in which an app estimates the memory that its recipes need."""

from __future__ import annotations

from functools import cache
from typing import Any

from trimaran import paths
from trimaran.files import read_plain
from trimaran.parsing import parse_json
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe

FILE = "estimates.json"
"""Name of the file with the estimated memory of an app's recipes; `scripts/estimates.py` writes
this file."""

LARGEST = 10_000_000
"""Maximum size of a file that is read, in bytes."""


def peak(name: str, recipe: Recipe) -> int | None:
    """Return the estimated memory of the most loaded rank, in bytes; None without an estimate.

    Args:
        name: name of the recipe, with or without a point of a series.
        recipe: the recipe; for a series, the recipe of the point.
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
