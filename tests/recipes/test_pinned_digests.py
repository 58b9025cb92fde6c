"""Tests of `image.digest`: one digest, or one for each architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import GOOD
from trimaran.errors import UsageError
from trimaran.recipes import library
from trimaran.recipes.recipe import ImageChoice

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
NAME = "resnet-imagenet/cpu-smoke"


def write(checkout: Path, digest: Any) -> None:
    path = checkout / f"recipes/{NAME}.yaml"
    path.parent.mkdir(exist_ok=True)
    content = {**GOOD, "image": {**GOOD["image"], "digest": digest}}
    path.write_text(yaml.safe_dump(content))


def test_one_digest_is_that_of_every_architecture() -> None:
    choice = ImageChoice(name="tiny", digest=ONE)
    assert choice.digest_for("amd64") == choice.digest_for("arm64") == ONE
    assert choice.digests == [ONE]
    assert ImageChoice(name="tiny").digest_for("amd64") is None
    assert ImageChoice(name="tiny").digests == []


def test_each_architecture_may_have_its_own(checkout: Path) -> None:
    write(checkout, {"amd64": ONE, "arm64": OTHER})
    choice = library.load(NAME).recipe.image
    assert choice.digest_for("amd64") == ONE
    assert choice.digest_for("arm64") == OTHER
    assert choice.digests == [ONE, OTHER]
    assert ImageChoice(name="tiny", digest={"arm64": ONE}).digest_for("amd64") is None


def test_a_recipe_without_a_digest_for_its_target_is_refused(checkout: Path) -> None:
    write(checkout, {"arm64": ONE})
    with refused("file-invalid", "image.digest", "arm64", "cpu-2core", "amd64"):
        library.load(NAME)


@pytest.mark.parametrize(("digest", "key", "named"), [
    ("sha256:12", "image.digest: ", "64 hexadecimal digits (found: 'sha256:12')"),
    ({"amd64": ONE, "arm64": "sha256:12"}, "image.digest.arm64: ", "64 hexadecimal digits"),
    ({"aarch64": ONE}, "image.digest.aarch64: ", "aarch64 is called arm64 here"),
    ({"riscv64": ONE}, "image.digest.riscv64: ", "'amd64' or 'arm64'"), ({}, "image.digest: ", "1"),
])
def test_a_wrong_digest_is_one_line_with_its_key(
    checkout: Path, digest: Any, key: str, named: str
) -> None:
    write(checkout, digest)
    with refused("file-invalid", f": {key}", named) as caught:
        library.load(NAME)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("digest", [{}, {"x86_64": ONE}, {"amd64": "sha256:1"}, {"amd64": None}, 5])
def test_other_values_are_refused(checkout: Path, digest: Any) -> None:
    write(checkout, digest)
    with pytest.raises(UsageError, match=r"image\.digest"):
        library.load(NAME)
