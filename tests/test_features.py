"""Every feature has a user: a recipe, or a page or benchmark whose commands a test executes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
import yaml

from shards.kinds import FormatName
from trimaran import paths
from trimaran.cluster import docker
from trimaran.data.contracts import READERS

ROOT = paths.repository()
RECIPES = [yaml.safe_load(path.read_text()) for path in (ROOT / "recipes").glob("*/*.yaml")
           if path.parent.name not in ("data", "targets")]
CONTRACTS = [yaml.safe_load(path.read_text()) for path in (ROOT / "recipes/data").glob("*.yaml")]
SCHEMA = json.loads((ROOT / "recipes/schema.json").read_text())

ELSEWHERE = {
    "image.digest": ("tests/integration/test_registry.py", "digest="),
    "image.signed_by": ("site/docs/tutorials/own-image.md", "signed_by: ["),
    "format lmdb": ("benchmarks/input_pipeline.py", '"lmdb"'),
    "format hdf5": ("benchmarks/input_pipeline.py", '"hdf5"'),
    f"form {docker.FORM}": ("tests/integration/test_docker_form.py", '"--form", "docker"'),
    "tuned": ("site/docs/guides/tuning.md", "the key `tuned`"),
    "efficiency": ("recipes/resnet-imagenet/gtx1080ti-x4-scaling.yaml", "efficiency: {over: 1"),
}
"""Feature that no recipe uses -> another file that uses it, and a text in that file.

The reasons for some of the features: no image is published yet, so no recipe can pin a
digest. The key for `signed_by` belongs to a user. `trimaran tune` writes `tuned` on the
user's machine. `efficiency` occurs only in the single runs of a series.
"""

PER_POINT = "series.points.*."
"""Prefix of the recipe keys for one point (run) of a series.

The test does not check these keys, because each of them is also a key of the whole recipe.
"""


def features(node: Mapping[str, Any], values: list[Any], name: str = "") -> Iterator[str]:
    """Yield the keys and values of the recipe schema `node` that no recipe in `values` uses."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]]
    for variant in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from features(variant, values, name)
    for value in node.get("enum", ()):
        if value not in values:
            yield f"{name}: {value}"
    for key, child in node.get("properties", {}).items():
        inner = [value[key] for value in values if isinstance(value, dict) and key in value]
        path = f"{name}.{key}" if name else key
        if all(value in (None, [], {}) for value in inner):
            yield path
        else:
            yield from features(child, inner, path)
    if isinstance(node.get("additionalProperties"), dict):
        inner = [item for value in values if isinstance(value, dict) for item in value.values()]
        yield from features(node["additionalProperties"], inner, f"{name}.*")
    if isinstance(node.get("items"), dict):
        inner = [item for value in values if isinstance(value, list) for item in value]
        yield from features(node["items"], inner, f"{name}[]")


def unused() -> set[str]:
    """Return the features of the tool that no recipe and no data contract uses.

    The features are the keys and values of the recipe schema, the formats and readers of data, and
    the form of Docker.
    """
    formats = {use["format"] for recipe in RECIPES for use in recipe["data"].values()}
    readers = {contract["reader"] for contract in CONTRACTS}
    return {
        *(feature for feature in features(SCHEMA, RECIPES) if not feature.startswith(PER_POINT)),
        *(f"format {name}" for name in get_args(FormatName) if name not in formats),
        *(f"reader {name}" for name in READERS if name not in readers),
        f"form {docker.FORM}",
    }


def test_each_feature_is_used_by_a_recipe_or_elsewhere() -> None:
    assert unused() == ELSEWHERE.keys()


@pytest.mark.parametrize("feature", ELSEWHERE)
def test_what_no_recipe_uses_is_used_there(feature: str) -> None:
    file, text = ELSEWHERE[feature]
    assert text in (ROOT / file).read_text()
