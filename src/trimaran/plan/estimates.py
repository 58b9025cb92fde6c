"""Read the file `estimates.json`, in which an app estimates the memory that its recipes need."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from trimaran import paths
from trimaran.files import read_plain
from trimaran.parsing import parse_json
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe

VERB = "estimate"
"""The verb of an app that computes estimates; in the file, it is the key of its output."""

LARGEST = 10_000_000
"""Maximum size of a file that is read, in bytes."""


def peak(name: str, recipe: Recipe) -> int | None:
    """Return the estimated memory of the most loaded rank, in bytes; None without an estimate.

    Args:
        name: name of the recipe, with or without a point of a series.
        recipe: the recipe; for a series, the recipe of the point.
    """
    known = read(recipe.app)
    series = library.definition(name.partition("@")[0]).series
    if series is not None and "@" not in name:
        name = f"{name}@{min(series.points)}"
    if name not in known:
        return None
    return int(largest(known[name])["peak"])


def largest(entry: dict[str, Any]) -> dict[str, int]:
    """Return the parts of the memory, in bytes, of the rank that needs most memory.

    Args:
        entry: the estimate of a recipe, as `read` returns it.
    """
    ranks: list[dict[str, int]] = entry[VERB]["memory"]
    return max(ranks, key=lambda rank: rank["peak"])


def path(app: str) -> Path:
    """Return the path of an app's file, which `scripts/estimates.py` writes."""
    return paths.app(app) / "estimates.json"


def read(app: str) -> dict[str, Any]:
    """Return the estimates of an app: recipe -> arguments and output of `VERB`.

    The result is empty if the app estimates nothing.
    """
    return _read(path(app))


@cache
def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    found: dict[str, Any] = parse_json(read_plain(file, LARGEST))
    return found
