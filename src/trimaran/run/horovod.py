"""Refuse a recipe that needs Horovod if its image was built without it.

Only images of AMD can lack Horovod (`build.optional` in their definition); a label tells it.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimaran.engines import BuiltImage, Engine
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.images.definition import HOROVOD_LABEL, Image
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
    needed = recipe.launcher == "horovodrun" or "horovod" in values
    if needed and lacks(engine, image, built):
        raise UsageError(
            f"the recipe needs Horovod, and {image.name} was built here without it",
            code="horovod-missing",
            hint="use a recipe with DDP (launcher torchrun, strategy ddp), or in TensorFlow a"
            " recipe with its own strategies; containers/README.md tells how to get Horovod",
        )


def lacks(engine: Engine, image: Image, built: BuiltImage) -> bool:
    """Return whether `built`, an image of the definition `image`, was built without Horovod."""
    if not engine.container or not definition.can_lack_horovod(image):
        return False
    return engine.described(built).labels.get(HOROVOD_LABEL) == "no"
