"""The findings about Arm processors, on described machines."""

from __future__ import annotations

import pytest

import hosts
from situations import by_id, situation
from trimaran.doctor import image_facts, limits, machine, processors
from trimaran.doctor.findings import Finding
from trimaran.images import definition


def found_on(name: str) -> dict[str, Finding]:
    known = hosts.situation(hosts.facts_of(name))
    return {finding.id: finding for finding in machine.check(known)}


@pytest.mark.parametrize(("name", "processor"), [
    ("arm-graviton3", "Arm Neoverse-V1"),
    ("arm-grace", "Arm Neoverse-V2, up to 3.47 GHz"),
    ("arm-altra", "Arm Neoverse-N1"),
    ("login-slurm", "processor unknown"),
])
def test_a_processor_has_its_name_and_clock_rate(name: str, processor: str) -> None:
    assert found_on(name)["cores"].cause.endswith(f" usable, {processor}")


@pytest.mark.parametrize(("name", "level", "fast"), [
    ("arm-graviton3", "ok", True), ("arm-grace", "ok", True), ("arm-altra", "warn", False),
])
def test_bf16_instructions_and_what_they_mean_are_told(name: str, level: str, fast: bool) -> None:
    found = found_on(name)["cpu-flags"]
    assert found.level == level
    assert "asimd" in found.cause
    assert ("DNNL_DEFAULT_FPMATH_MODE=BF16" in found.cause) == fast


def test_memory_of_a_gpu_is_no_numa_node_of_the_processor() -> None:
    assert list(processors.numa_nodes(hosts.facts_of("arm-grace"))) == ["node0"]


@pytest.mark.parametrize("name", ["arm-graviton3", "arm-grace", "arm-altra"])
def test_training_in_bf16_is_slow_on_arm(name: str) -> None:
    known = situation(hosts.facts_of(name), args={"precision": "bf16"})
    assert by_id(limits.check(known))["bfloat"].level == "warn"


def test_the_kinds_of_gpu_are_those_of_the_image_for_the_processor() -> None:
    """NVIDIA's GH200 has code in both images; PyTorch's wheel for arm64 has none for the T4."""
    image = definition.load("torch-cuda13")
    kinds = {
        one: image_facts.of_image(definition.on(image, one)).values["gpu-architectures"].split()
        for one in image.architectures
    }
    assert [one for one, known in kinds.items() if "sm_90" in known] == ["amd64", "arm64"]
    assert [one for one, known in kinds.items() if "sm_75" in known] == ["amd64"]
