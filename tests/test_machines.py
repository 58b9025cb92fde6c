"""The page that says which machine takes which image."""

from __future__ import annotations

from generator import machines
from trimaran.architectures import ARCHITECTURES
from trimaran.images import definition
from trimaran.recipes import library

FRAMEWORKS = [image for image in definition.every() if image.kind == "framework"]


def rows() -> dict[str, list[str]]:
    return {row[0].strip("`"): row for row in machines.nodes()}


def test_each_framework_image_has_a_row_for_each_architecture() -> None:
    found = {(row[2].strip("`"), row[3]): row[4] for row in machines.kinds(FRAMEWORKS)}
    assert set(found) == {(image.name, one) for image in FRAMEWORKS for one in ARCHITECTURES}
    for image in FRAMEWORKS:
        for architecture, reason in image.lacks.items():
            assert found[image.name, architecture] == f"no image: {reason}"


def test_each_recipe_is_in_the_row_of_its_target() -> None:
    found = rows()
    for name in library.names():
        assert f"[{name}](" in found[library.definition(name).target][4]


def test_the_image_of_a_node_is_that_of_its_architecture() -> None:
    found = rows()
    assert found["grace-2s"][2:4] == ["arm64", "`resnet-imagenet-torch-cpu`"]
    assert found["cpu-2core"][2] == "amd64"
    assert found["power9-v100x4"][2] == "ppc64le"
    assert "has no image for ppc64le" in found["power9-v100x4"][3]


def test_an_image_without_the_architecture_says_why() -> None:
    assert machines._offer("torch-cuda12", "aarch64").endswith(
        definition.load("torch-cuda12").lacks["arm64"])
