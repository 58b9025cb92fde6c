"""Framework images, whose libraries of Horovod are compiled, are the same in each build."""

from __future__ import annotations

import pytest

import twobuilds
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

pytestmark = [
    pytest.mark.long, pytest.mark.engine("apptainer"), pytest.mark.usefixtures("user_cache"),
    pytest.mark.timeout(3 * 3600),
]


@pytest.mark.parametrize("name", ["torch-cpu", "tensorflow-cpu"])
def test_a_framework_image_is_built_again_byte_by_byte(name: str) -> None:
    image = definition.load(name)
    Apptainer().build(image, base=None, offline=False, reporter=Silent())  # has its packages then
    first, second = twobuilds.digests(image)
    assert first == second
