"""Read the sources of all pages: definitions, recipes, app cards and evidence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from generator import evidence, image_overview, published, recipe_status
from generator.evidence import AllEvidence
from generator.published import Published
from generator.recipe_status import RecipeStatus
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.recipes import cards
from trimaran.recipes.cards import Card


@dataclass(frozen=True)
class Sources:
    """The sources of all pages, read from the checkout.

    Attributes:
        shelf: all evidence.
        standings: status of each recipe by its name; for a scaling series, the status of each size
            by the name RECIPE@SIZE.
        images: image definitions, framework images first, each for the first of its architectures.
        cards: app cards, by app.
        published: published numbers that are in no recipe.
        today: the current date; evidence that is more than 12 months older counts as stale.
    """

    shelf: AllEvidence
    standings: Mapping[str, RecipeStatus]
    images: list[Image]
    cards: Mapping[str, Card]
    published: Published
    today: dt.date = field(default_factory=dt.date.today)

    @cached_property
    def recipes(self) -> dict[str, list[RecipeStatus]]:
        """Name of a recipe -> its statuses: one, or one for each size of a scaling series."""
        found: dict[str, list[RecipeStatus]] = {}
        for one in self.standings.values():
            found.setdefault(one.name.partition("@")[0], []).append(one)
        return found


def read(today: dt.date | None = None) -> Sources:
    """Read all sources.

    Args:
        today: evidence that is more than 12 months older than this date counts as stale; None:
            the current date.

    Raises:
        UsageError: A file has faults; the message has file, line and reason.
    """
    found = evidence.read()
    # The pages must not depend on the processor of the machine that generates them.
    images = [image_overview.on_each(image)[0] for image in definition.every()]
    return Sources(
        shelf=found,
        standings={one.name: one for one in recipe_status.all_of(found)},
        images=sorted(images, key=lambda image: (image.kind == "app", image.name)),
        cards={name: cards.load(name).card for name in cards.names()},
        published=published.load(), today=today or dt.date.today(),
    )
