"""The app of the tutorial: the page shows parts of its files, and the tool accepts the files."""

from __future__ import annotations

import re

import pytest

from showncommands import DOCS
from trimaran.images import definition
from trimaran.recipes import cards, library

PAGE = DOCS / "tutorials/own-app.md"
OWN = DOCS / "tutorials/slope"
SHOWN = re.findall(r'^```(?:yaml|python) title="mine/(.+?)"\n(.*?)^```$', PAGE.read_text(),
                   re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("file", "text"), SHOWN)
def test_what_the_page_shows_is_in_the_file(file: str, text: str) -> None:
    assert text in (OWN / file).read_text()


def test_every_block_is_such_a_part_or_a_command() -> None:
    assert len(SHOWN) == len(re.findall(r"^```(?!sh)\w", PAGE.read_text(), re.MULTILINE)) > 3


def test_recipe_image_and_card_are_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_RECIPES", str(OWN))
    recipe = library.load("slope/cpu-2core-smoke").recipe
    assert recipe.image.name == "slope-torch-cpu"
    image = definition.load(recipe.image.name)
    assert image.app is not None
    assert image.app.packages[-1] == recipe.app
    assert [one.metric for one in recipe.expected] == list(cards.load(recipe.app).card.metrics)


def test_every_file_is_named_in_the_page() -> None:
    """Each file is named in the page, or is in the same folder as a named file."""
    named = {OWN / found for found in re.findall(r"\]\(slope/(.+?)\)", PAGE.read_text())}
    assert all(path.is_file() for path in named)
    folders = {path.parent for path in named}
    files = [path for path in OWN.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [path for path in files if path.parent not in folders] == []
