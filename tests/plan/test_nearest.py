"""Test the choice of the target most similar to a machine, and the prediction from it."""

from __future__ import annotations

import pytest

from trimaran.hostfacts import HostFacts
from trimaran.plan import nearest

RECIPE = "resnet-imagenet/v100x8-throughput"


def host(*accelerators: str, architecture: str = "x86_64", cores: int = 40) -> HostFacts:
    return HostFacts(
        hostname="n1", os="Linux", kernel="6", architecture=architecture, processor="a CPU",
        cores=cores, memory_gib=500, cpu_flags=["avx2", "avx512f"],
        accelerators=list(accelerators), python="3.11",
    )


V100 = "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize(("found", "target"), [
    (host(*[V100] * 7), "v100x8"), (host(V100), "v100x1"), (host(*["NVIDIA A100-SXM4-80GB"] * 8),
                                                             "a100x8"),
])
def test_the_kind_and_the_number_of_accelerators_decide(found: HostFacts, target: str) -> None:
    one = nearest.find("resnet-imagenet", found)
    assert one is not None
    assert one.target == target


def test_a_machine_without_accelerators_is_compared_with_such_targets() -> None:
    one = nearest.find("resnet-imagenet", host(cores=4))
    assert one is not None
    assert one.target.startswith(("cpu", "skx"))


def test_no_target_resembles_another_architecture() -> None:
    assert nearest.find("resnet-imagenet", host(architecture="riscv64")) is None
    assert list(nearest.sentences(RECIPE, [host(architecture="riscv64")])) == []


def test_the_prediction_is_for_the_devices_of_the_machine() -> None:
    target, predicted = nearest.sentences(RECIPE, [host(*[V100] * 7)])
    assert "v100x8" in target
    assert "7 accelerators, not 8" in target
    assert "7 NVIDIA V100" in predicted
    assert "+-7%" in predicted


def test_without_hardware_facts_only_the_target_is_named() -> None:
    (line,) = nearest.sentences("resnet-imagenet/cpu-quickstart", [host(cores=4)])
    assert "Nearest target" in line


def test_nothing_is_said_without_facts_of_nodes() -> None:
    assert list(nearest.sentences(RECIPE, [])) == []
