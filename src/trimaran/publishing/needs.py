"""Find the images that a recipe needs."""

from __future__ import annotations

from collections.abc import Iterator

from trimaran.architectures import Architecture
from trimaran.engines import Engine
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe
from trimaran.run import machines


def recipes_of(name: str) -> Iterator[tuple[str, Recipe]]:
    """Yield the recipe `name`, and the recipes whose checkpoints it starts from, with their names.

    A series has one image for all its runs (points), so that its name needs no point.

    Raises:
        UsageError: No recipe has this name, the series has no such point, or a file has faults.
    """
    recipe = library.load(name).recipe if "@" in name else library.definition(name)
    yield name, recipe
    # The library refuses recipes that start from each other.
    if recipe.initial is not None and recipe.initial.recipe is not None:
        yield from recipes_of(recipe.initial.recipe)


def images_of(name: str) -> list[Image]:
    """Return the images of the recipe `name`: framework images first, each of them once.

    Raises:
        UsageError: As in `recipes_of`.
    """
    chains = [
        definition.chain(definition.load(recipe.image.name)) for _, recipe in recipes_of(name)
    ]
    return list({image.name: image for chain in chains for image in chain}.values())


def of_recipe(
    name: str, stated: Architecture | None, engine: Engine
) -> list[tuple[Image, str | None]]:
    """Return the images to pull for the recipe `name`, each with the digest that is pinned or None.

    An app image contains its framework image, so that the latter is not pulled.

    Args:
        name: name of the recipe.
        stated: the architecture in an option or in the site file; None: this machine's for recipes
            that `trimaran run` starts, and that of the target's nodes for others.
        engine: engine for which the images are pulled.

    Raises:
        UsageError: The name is unknown, no image exists for the architecture, or the recipe pins
            images for other architectures only.
    """
    found: dict[tuple[str, str, str | None], tuple[Image, str | None]] = {}
    for own, recipe in recipes_of(name):
        architecture = machines.architecture(recipe, stated, here=True)
        if architecture is None:
            raise machines.unsupported(own, recipe)
        image = definition.on(definition.load(recipe.image.name), architecture)
        digest = machines.pinned(own, recipe.image, architecture)
        if digest is not None and engine.form is not None:
            digest = digests.counterpart(image.name, digest, engine.form)
        found.setdefault((image.name, architecture, digest), (image, digest))
    return list(found.values())
