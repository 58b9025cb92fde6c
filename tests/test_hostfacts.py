"""Facts of the machine, from what Linux shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import hostfacts


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
