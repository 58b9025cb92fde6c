"""Every image for CPUs is built, or found in the cache, and tested in the way it is used."""

from __future__ import annotations

import pytest

import tinyapp
from trimaran.engines import image_contents
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition, wheelhouse
from trimaran.reporting import Silent

FOR_CPUS = [
    name for name in definition.names()
    if (first := definition.chain(definition.load(name))[0]).gpu is None and first.base is not None
]

LARGEST = {"torch-cpu": 1.3e9}
"""Image -> limit for the size of its SIF in bytes; users pull images over slow networks."""

ADDED_BY_AN_APP = 20e6
"""Largest size in bytes that an app adds to its framework image, besides its own packages."""
BYTECODE = 1.1
"""Largest ratio of the size of installed packages to their wheels; bytecode makes it exceed 1."""


@pytest.mark.engine("apptainer")
@pytest.mark.timeout(1800)  # Horovod is compiled: minutes, the first time
@pytest.mark.usefixtures("user_cache")
@pytest.mark.parametrize(
    "name",
    # A variant has all that its image has: what is more in it is not asked for at each change.
    [pytest.param(name, marks=[pytest.mark.long] if definition.load(name).variant else [])
     for name in FOR_CPUS],
)
def test_the_image_is_built_and_passes_its_self_test(name: str) -> None:
    engine, image = Apptainer(), definition.load(name)
    built = engine.build(image, base=None, offline=False, reporter=Silent())
    engine.test(image, built, Silent())
    assert built.size <= LARGEST.get(name, 2e9)
    below = engine.find(definition.chain(image)[0])
    assert below is not None
    own = wheelhouse.fetch(image, offline=True, reporter=Silent()) if image.framework else []
    packages = sum(item.kept.stat().st_size for item in own)
    assert built.size - below.size <= ADDED_BY_AN_APP + BYTECODE * packages
    assert tinyapp.excessive(image_contents.of(engine, built).files) == []


def test_there_are_images_for_cpus() -> None:
    assert {"torch-cpu", "tensorflow-cpu", "resnet-imagenet-torch-cpu"} <= set(FOR_CPUS)
