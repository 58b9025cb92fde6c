"""Compare the rooflines of devices with published rates."""

from __future__ import annotations

import pytest

from trimaran.plan import base_rate, situation
from trimaran.recipes import library, targets

FLOORS = {"resnet-imagenet/mi325x8-throughput"}
"""Recipes that are left out, because their published throughput is only a pass threshold.

The threshold is below the rate that the device reaches.
"""


def published() -> list[str]:
    """Return the ResNet-50 recipes with a published throughput and a target with hardware facts."""
    found = []
    for name in library.files():
        if not name.startswith("resnet-imagenet/") or name in FLOORS:
            continue
        recipe = situation.first(name)
        rated = any(one.metric == "throughput" and one.source and one.unjudged is None
                    for one in recipe.expected)
        if (rated and recipe.args.get("model") == "resnet50"
                and targets.load(recipe.target).hardware is not None):
            found.append(name)
    return found


@pytest.mark.parametrize("name", published())
def test_a_published_rate_is_within_the_stated_range_of_its_roofline(name: str) -> None:
    found = situation.of(name)
    rate, _ = base_rate._published(found) or (0, "")
    bound, _ = base_rate.roofline(found)
    low, high = base_rate.ROOFLINE_RANGE
    assert low <= rate / bound <= high
