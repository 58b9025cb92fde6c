"""Test that a recipe that needs Horovod is refused on an image that was built without it."""

from __future__ import annotations

import pytest

from refusals import refused
from trimaran.engines import BuiltImage, Description, image_contents
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.host import Host
from trimaran.images import definition
from trimaran.images.definition import HOROVOD_LABEL
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe
from trimaran.run import horovod

AMD, CPU = definition.load("resnet-imagenet-torch-rocm"), definition.load("torch-cpu")
BUILT = BuiltImage(AMD.name, "apptainer", "/nowhere.sif", "sha256:1", "1", 1)
RECIPE = library.load("resnet-imagenet/mi300x8-throughput").recipe


class Labelled(Apptainer):
    """An engine whose images have the Horovod label with the value `value`; None: no label."""

    def __init__(self, value: str | None) -> None:
        self.labels = {} if value is None else {HOROVOD_LABEL: value}

    def described(self, built: BuiltImage) -> Description:
        """Return a description of the image with the label that the test has chosen."""
        return Description(self.labels, "")


def changed(**values: object) -> Recipe:
    return RECIPE.model_copy(update=values)


@pytest.mark.parametrize(("recipe", "values"), [
    (RECIPE, ["horovod"]), (changed(launcher="horovodrun"), []),
])
def test_a_recipe_that_needs_horovod_is_refused(recipe: Recipe, values: list[str]) -> None:
    with refused("horovod-missing", AMD.name) as caught:
        horovod.check(recipe, values, Labelled("no"), AMD, BUILT)
    assert caught.value.hint is not None
    horovod.check(recipe, values, Labelled("yes"), AMD, BUILT)


def test_a_recipe_with_ddp_runs_without_horovod() -> None:
    horovod.check(RECIPE, RECIPE.args.values(), Labelled("no"), AMD, BUILT)


@pytest.mark.parametrize(("value", "lacks"), [("no", True), ("yes", False), (None, False)])
def test_the_label_tells_whether_horovod_is_there(value: str | None, lacks: bool) -> None:
    assert image_contents.lacks_horovod(Labelled(value), AMD, BUILT) is lacks


def test_only_images_of_amd_can_lack_horovod() -> None:
    assert not image_contents.lacks_horovod(Labelled("no"), CPU, BUILT)
    optional = {image.name for image in definition.every() if definition.can_lack_horovod(image)}
    assert all("-rocm" in name for name in optional)
    assert {"torch-rocm", "tensorflow-rocm"} <= optional


def test_the_host_engine_has_no_labels() -> None:
    assert not image_contents.lacks_horovod(Host(), AMD, BUILT)
