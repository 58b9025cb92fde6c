from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refusals import refused
from trimaran import strict
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
        ({"cores": 4}, {}, "8 cores, not 4"),
        ({"architecture": "aarch64"}, {}, "architecture x86_64, not aarch64"),
        ({"cpu_flags": ["avx2", "avx512f", "amx_bf16"]}, {}, "processor without amx_bf16, avx512f"),
        ({}, {"accelerators": [GPU]}, "1 accelerators, not 4"),
        ({}, {"accelerators": [GPU] * 5}, "5 accelerators, not 4"),
        ({}, {"accelerators": []}, "0 accelerators, not 4"),
        ({}, {"accelerators": [GPU] * 3 + ["NVIDIA A100"]},
         "accelerators NVIDIA A100, not GTX 1080 Ti"),
        ({"accelerators": 0, "accelerator": None}, {}, "4 accelerators, not 0"),
        ({"accelerator": "MI250X"}, {"accelerators": ["AMD Instinct MI210 (gfx90a)"] * 4},
         "accelerators AMD Instinct MI210 (gfx90a), not MI250X"),
        ({}, {"accelerators": ["NVIDIA A100"] * 4}, "accelerators NVIDIA A100, not GTX 1080 Ti"),
    ],
)
def test_each_difference_is_named(
    node: dict[str, Any], facts: dict[str, Any], difference: str
) -> None:
    assert targets.differences(target(**node), host(**facts)) == [difference]


@pytest.mark.parametrize(
    ("node", "facts"),
    [
        ({"cores": 8}, {}),
        ({"memory_gib": 32}, {}),
        ({"memory_gib": 16}, {}),  # more is no other machine
        ({"cpu_flags": ["avx2"]}, {"cpu_flags": ["avx", "avx2", "avx512f"]}),
        ({"accelerators": 0, "accelerator": None}, {"accelerators": []}),
    ],
)
def test_what_a_target_says_may_be_just_met(node: dict[str, Any], facts: dict[str, Any]) -> None:
    assert targets.differences(target(**node), host(**facts)) == []


def test_all_differences_are_named_at_once() -> None:
    found = targets.differences(
        target(cores=2, memory_gib=40, architecture="aarch64"), host(accelerators=[])
    )
    assert [text.split(" ")[0] for text in found] == ["architecture", "8", "32", "0"]


@pytest.mark.parametrize(
    ("architecture", "flag", "known"),
    [("x86_64", "avx512_b16", "avx512_bf16"), ("x86_64", "sve", "avx"),
     ("aarch64", "avx2", "sve2"),
    ],
)
def test_a_flag_that_no_machine_has_is_an_error_with_its_line(
    architecture: str, flag: str, known: str, tmp_path: Path
) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(
        f"schema: 1\nsummary: A test.\nnode:\n  architecture: {architecture}\n"
        f"  cpu_flags: [{flag}]\n"
    )
    named = (f"target.yaml:5: node.cpu_flags: {architecture} ", f"'{flag}'", known)
    with refused("file-invalid", *named):
        strict.load(Target, path)
