"""Load the copies of recipe and app card in a run directory."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trimaran.errors import UsageError, unreadable
from trimaran.files import read_plain
from trimaran.recipes import cards, library
from trimaran.recipes.library import RecipeFile
from trimaran.run import run_directory
from trimaran.run.record import RunRecord


def recipe_as_run(directory: Path, record: RunRecord) -> RecipeFile:
    """Load the copies of recipe and app card in the run directory, and check their hashes.

    For a run of an older version, which has no copy of the card, the card of this checkout is used.

    Raises:
        UsageError: a copy cannot be read, or differs from its hash in `run.json`.
    """
    used = record.recipe
    recipe = _copy(directory / run_directory.RECIPE, "recipe", used.sha256)
    if used.card_sha256 is None:
        card = cards.load(used.name.partition("/")[0])
    else:
        copy = _copy(directory / run_directory.CARD, "app card", used.card_sha256)
        card = cards.load_copy(copy)
    return library.on_nodes(library.load_copy(recipe, used.name, card), used.nodes)


def _copy(path: Path, what: str, digest: str) -> Path:
    try:
        found = hashlib.sha256(read_plain(path)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
    if found != digest:
        raise UsageError(f"{path} is not the {what} of the run: run.json has another SHA-256",
                         code="run-changed", hint="use an undamaged copy of the run")
    return path
