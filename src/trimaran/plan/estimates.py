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
"""The subcommand of an app that estimates memory, and the key of its output in `estimates.json`."""

LARGEST = 10_000_000
"""Maximum accepted size of `estimates.json` in bytes."""


def peak(name: str, recipe: Recipe) -> int | None:
    """Return the estimated memory of the most loaded rank, in bytes; None without an estimate.

    Args:
        name: name of the recipe; for one run of a series, `RECIPE@NUMBER`. A series without
            `@NUMBER` stands for its smallest run.
        recipe: the recipe; for a series, the recipe of this run.
    """
    known = read(recipe.app)
    series = library.definition(name.partition("@")[0]).series
    if series is not None and "@" not in name:
        name = f"{name}@{min(series.points)}"
    if name not in known:
        return None
    return int(largest(known[name])["peak"])


def largest(entry: dict[str, Any]) -> dict[str, int]:
    """Return the estimate of the rank that needs most memory: kind of memory -> bytes.

    The kind `peak` is the largest total at any moment of a step.

    Args:
        entry: the estimate of a recipe, as `read` returns it.
    """
    ranks: list[dict[str, int]] = entry[VERB]["memory"]
    return max(ranks, key=lambda rank: rank["peak"])


def path(app: str) -> Path:
    """Return the path of the `estimates.json` of an app, which `scripts/estimates.py` writes."""
    return paths.app(app) / "estimates.json"


def read(app: str) -> dict[str, Any]:
    """Return the memory estimates for the recipes of an app, by name of the recipe.

    Each estimate has the arguments and the output of the app's subcommand `VERB`.

    The result is empty if the app has no file `estimates.json`.
    """
    return _read(path(app))


@cache
def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    found: dict[str, Any] = parse_json(read_plain(file, LARGEST))
    return found
