from __future__ import annotations

from typing import Any

import pytest

from trimaran.hostfacts import HostFacts, host_facts
from trimaran.recipes import targets
from trimaran.recipes.targets import Node, Target

GPU = "NVIDIA GeForce GTX 1080 Ti"


def host(**changes: Any) -> HostFacts:
    facts = {"architecture": "x86_64", "cores": 8, "memory_gib": 32.0, "cpu_flags": ["avx2"],
             "accelerators": [GPU] * 4}
    return host_facts().model_copy(update=facts | changes)


def target(**node: Any) -> Target:
    whole = {"architecture": "x86_64", "accelerators": 4, "accelerator": "GTX 1080 Ti"} | node
    return Target(schema=1, summary="A test.", node=Node(**whole))


def test_what_a_target_does_not_say_any_machine_has() -> None:
    assert targets.differences(target(), host()) == []


@pytest.mark.parametrize(
    ("node", "facts", "difference"),
    [
        ({"cores": 16}, {}, "8 cores, not 16"),
        ({"memory_gib": 64}, {}, "32 GiB of memory, less than 64"),
        ({"cpu_flags": ["avx512f"]}, {}, "processor without avx512f"),
        ({}, {"accelerators": [GPU]}, "1 accelerators, not 4"),
        ({}, {"accelerators": ["NVIDIA A100"] * 4}, "accelerators NVIDIA A100, not GTX 1080 Ti"),
    ],
)
def test_each_difference_is_named(
    node: dict[str, Any], facts: dict[str, Any], difference: str
) -> None:
    assert targets.differences(target(**node), host(**facts)) == [difference]
