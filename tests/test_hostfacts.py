"""Test the facts of a machine that are read from the files and functions of Linux."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from trimaran import hostfacts, process


def topology(root: Path, *nodes: dict[str, object]) -> Path:
    for number, facts in enumerate(nodes):
        node = root / "kfd" / str(number)
        node.mkdir(parents=True)
        lines = [f"{key} {value}\n" for key, value in facts.items()]
        (node / "properties").write_text("".join(lines))
    return root / "kfd"


CPU = {"cpu_cores_count": 64, "simd_count": 0, "vendor_id": 0, "gfx_target_version": 0}
GPU = {"cpu_cores_count": 0, "simd_count": 440, "vendor_id": 4098, "drm_render_minor": 128}


def test_amds_gpus_are_named_by_product_and_instruction_set(tmp_path: Path) -> None:
    kfd = topology(tmp_path, CPU, GPU | {"gfx_target_version": 90010},
                   GPU | {"gfx_target_version": 100300, "drm_render_minor": 129})
    card = tmp_path / "drm/renderD128/device/product_name"
    card.parent.mkdir(parents=True)
    card.write_text("AMD Instinct MI250X\n")
    assert hostfacts.amd(kfd, tmp_path / "drm") == [
        "AMD Instinct MI250X (gfx90a)", "AMD GPU (gfx1030)"
    ]


def test_they_come_in_the_drivers_order_and_ten_after_nine(tmp_path: Path) -> None:
    kfd = topology(tmp_path, *[GPU | {"gfx_target_version": 90400 + at} for at in range(11)])
    found = hostfacts.amd(kfd, tmp_path)
    assert found[1:3] == ["AMD GPU (gfx941)", "AMD GPU (gfx942)"]
    assert len(found) == 11
    assert found[10] == "AMD GPU (gfx94a)"


def test_without_the_driver_there_are_none(tmp_path: Path) -> None:
    assert hostfacts.amd(tmp_path / "absent", tmp_path) == []


def test_a_topology_that_may_not_be_read_has_none(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    assert hostfacts.amd(tmp_path, tmp_path) == []


@pytest.mark.parametrize("architecture", hostfacts.FLAGS)
def test_flags_are_as_proc_cpuinfo_writes_them(architecture: str) -> None:
    assert all(flag == flag.lower() and " " not in flag for flag in hostfacts.FLAGS[architecture])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine with 64 cores, of which a process may use three; return its cpuinfo."""
    file = tmp_path / "cpuinfo"
    file.write_text("model name : A processor\nflags : fpu avx avx2 avx512_bf16x\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(
        total=48 * 2**30, available=2**30, free=2**29, used=2**28,
    ))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(hostfacts, "Path", lambda _: file)
    monkeypatch.setattr(hostfacts, "amd", lambda: ["AMD GPU (gfx942)"])
    monkeypatch.setattr(hostfacts, "_nvidia", lambda: ["NVIDIA A100"] * 2)
    return file


def test_a_machine_is_told_as_far_as_the_run_may_use_it(machine: Path) -> None:
    found = hostfacts.host_facts.__wrapped__()
    assert (found.cores, found.memory_gib, found.processor) == (3, 48.0, "A processor")
    assert found.cpu_flags == ["avx", "avx2"]
    assert found.accelerators == ["NVIDIA A100", "NVIDIA A100", "AMD GPU (gfx942)"]


def test_an_arm_processor_has_its_instruction_sets(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write_text("Features : fp asimd sve bf16\n")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert hostfacts.host_facts.__wrapped__().cpu_flags == ["asimd", "bf16", "sve"]


@pytest.mark.parametrize(("status", "names"), [
    (0, ["NVIDIA A100", "NVIDIA A100", "NVIDIA T4"]), (9, []),
])
def test_each_gpu_that_the_driver_lists_counts(
    status: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: Any = SimpleNamespace(
        returncode=status, stdout="NVIDIA A100\nNVIDIA A100\nNVIDIA T4\n"
    )
    monkeypatch.setattr(hostfacts.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(process, "ask", lambda *_, **__: said)
    assert hostfacts._nvidia() == names
    monkeypatch.setattr(hostfacts.shutil, "which", lambda name: None)
    assert hostfacts._nvidia() == []
