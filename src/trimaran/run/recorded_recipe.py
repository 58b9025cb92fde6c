"""The recipe of a run and the card of its app, as the run directory keeps them."""

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
    """Load the copies of recipe and card in the run directory, and check that they are untouched.

    A run of an older version has no card: it is judged by that of this checkout.
    """
    said = record.recipe
    recipe = _copy(directory / run_directory.RECIPE, "recipe", said.sha256)
    if said.card_sha256 is None:
        card = cards.load(said.name.partition("/")[0])
    else:
        copy = _copy(directory / run_directory.CARD, "card of the app", said.card_sha256)
        card = cards.load_copy(copy)
    return library.on_nodes(library.load_copy(recipe, said.name, card), said.nodes)


def _copy(path: Path, what: str, digest: str) -> Path:
    try:
        found = hashlib.sha256(read_plain(path)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
    if found != digest:
        raise UsageError(f"{path} is not the {what} that was run (run.json has another SHA-256)")
    return path
