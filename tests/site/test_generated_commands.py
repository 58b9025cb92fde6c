"""Each block of commands on a generated page is executed by a test, or in a dry run."""

from __future__ import annotations

import functools

from generator import commands, images, recipes
from generator import sources as everything
from generator.recipe_status import RecipeStatus
from showncommands import blocks, copied
from trimaran.images import definition

READ = everything.read()
IMAGE = "resnet-imagenet-torch-cpu"
"""The image whose commands `tests/integration/test_site_commands.py` executes."""


@functools.cache
def made() -> dict[str, list[str]]:
    """Return path -> blocks of commands, for the pages of recipes and images."""
    pages = [*recipes.pages(READ), *images.pages(READ)]
    return {page.place: found for page in pages if (found := copied(page.text))}


def points(page: str) -> list[RecipeStatus]:
    name = page.removeprefix("recipes/").removesuffix(".md")
    return [one for one in READ.standings.values() if one.name.partition("@")[0] == name]


def test_a_recipes_page_shows_what_is_tried() -> None:
    """A recipe's page shows only commands that a test executes, or tries with `--dry-run`.

    `test_recipe_commands.py` tries those for one machine, and `trimaran submit` with `--dry-run`.
    The test of the tutorial on clusters executes the commands for submitted runs.
    """
    [then] = [block.text.strip() for block in blocks("tutorials/cluster.md")
              if block.how == "small" and block.text.startswith("trimaran logs -f")]
    pages = [page for page in made() if page.startswith("recipes/") and points(page)]
    assert len(pages) > 30
    for page in pages:
        wanted = [then] * len(points(page))
        for one in points(page):
            wanted += [commands.submit(one), commands.plain(one)]
            wanted += [here] if (here := commands.run(one)) else []
        assert sorted(made()[page]) == sorted(wanted), page


def test_the_page_of_each_image_shows_commands_that_are_tried() -> None:
    def of(image: str) -> set[str]:
        return {text.replace(image, "IMAGE") for text in made()[f"images/{image}.md"]}

    assert len(of(IMAGE)) >= 3
    for image in definition.names():
        assert {text for text in of(image) if not text.startswith("trimaran pull ")} <= of(IMAGE)
