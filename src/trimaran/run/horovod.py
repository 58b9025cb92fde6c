"""Refuse a recipe that needs Horovod if its image was built without it.

Only images of AMD can lack Horovod (`build.optional` in their definition); a label tells it.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimaran.engines import BuiltImage, Engine, image_contents
from trimaran.errors import UsageError
from trimaran.images.definition import Image
from trimaran.recipes.recipe import Recipe


def check(
    recipe: Recipe, values: Iterable[object], engine: Engine, image: Image, built: BuiltImage
) -> None:
    """Check that the image has Horovod if the recipe needs it.

    Args:
        recipe: the recipe.
        values: the values of all arguments of the app.
        engine: the engine of the image.
        image: the definition of the image.
        built: the built image.

    Raises:
        UsageError: the recipe needs Horovod, and the image was built without it.
    """
    if needs(recipe, values) and image_contents.lacks_horovod(engine, image, built):
        raise UsageError(
            f"the recipe needs Horovod, and {image.name} was built here without it",
            code="horovod-missing",
            hint="use a recipe with DDP (launcher torchrun, strategy ddp), or in TensorFlow a"
            " recipe with its own strategies; containers/README.md tells how to get Horovod",
        )


def needs(recipe: Recipe, values: Iterable[object]) -> bool:
    """Return whether the recipe with these `values` of the app's arguments needs Horovod."""
    return recipe.launcher == "horovodrun" or "horovod" in values
