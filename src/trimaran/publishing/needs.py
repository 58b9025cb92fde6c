"""Find the images that a recipe needs."""

from __future__ import annotations

from collections.abc import Iterator

from trimaran.architectures import Architecture, of_machine
from trimaran.engines import Engine
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.recipes import library, targets
from trimaran.recipes.recipe import Recipe


def recipes_of(name: str) -> Iterator[Recipe]:
    """Yield the recipe `name`, and the recipes whose checkpoints it starts from.

    Raises:
        UsageError: No recipe has this name, or a file has faults.
    """
    recipe = library.definition(name.partition("@")[0])
    yield recipe
    if recipe.initial is not None and recipe.initial.recipe is not None:
        yield from recipes_of(recipe.initial.recipe)


def _image_of(recipe: Recipe) -> Image:
    return definition.load(recipe.image.name)


def images_of(name: str) -> list[Image]:
    """Return the images of the recipe `name`: framework images first, each of them once."""
    chains = [definition.chain(_image_of(recipe)) for recipe in recipes_of(name)]
    return list({image.name: image for chain in chains for image in chain}.values())


def of_recipe(
    name: str, wanted: Architecture | None, engine: Engine
) -> list[tuple[Image, str | None]]:
    """Return the images to pull for the recipe `name`, each with the digest that is pinned or None.

    An app image contains its framework image, so that the latter is not pulled.

    Args:
        name: name of the recipe.
        wanted: the architecture; None: that of the target's nodes.
        engine: engine for which the images are pulled.

    Raises:
        UsageError: The name is unknown, no image exists for the architecture, or the recipe pins
            images for other architectures only.
    """
    found: dict[tuple[str, str, str | None], tuple[Image, str | None]] = {}
    for recipe in recipes_of(name):
        machine = targets.load(recipe.target).node.architecture
        architecture = wanted or of_machine(machine)
        if architecture is None:
            raise UsageError(f"{name}: no image is made for the nodes of {recipe.target}, which are"
                             f" {machine}", code="architecture-unsupported",
                             hint="for other nodes, give --arch amd64 or --arch arm64")
        image = definition.on(_image_of(recipe), architecture)
        digest = recipe.image.digest_for(architecture)
        if digest is None and recipe.image.digests:
            raise UsageError(
                f"{name} pins {image.name} for other architectures than {architecture}",
                code="architecture-mismatch", hint="leave out --arch, or choose another recipe")
        if digest is not None and engine.form is not None:
            digest = digests.counterpart(image.name, digest, engine.form)
        found.setdefault((image.name, architecture, digest), (image, digest))
    return list(found.values())
