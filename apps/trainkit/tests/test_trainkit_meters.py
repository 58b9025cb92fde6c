"""Tests of the energy meters, with simulated RAPL counters and GPU drivers.

The library zeus, which accesses the counters and drivers, is not modified.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from described_hosts import EPYC, SPAN, XEON_2S, AmdSmi, Nvml, count, rapl

from trainkit import gpu_meters, meters
from trainkit.energy import find
from trainkit.meters import CPU, GPU, About, Gpu, MeterError, RaplMeter, packages

zeus = pytest.importorskip("zeus.device", reason="zeus is not installed")


def names(found: list[meters.Meter]) -> list[str]:
    return [meter.about.label.split(" ", 1)[1] for meter in found]


def test_packages_and_their_memory_are_metered_and_the_platform_is_not(tmp_path: Path) -> None:
    place = rapl(tmp_path, XEON_2S)
    found = packages(place)
    assert names(found) == ["package-0", "package-0 dram", "package-1", "package-1 dram"]
    assert {meter.about.kind for meter in found} == {CPU}
    assert len({meter.about.identity for meter in found}) == 4
    for place_of, counter in (("intel-rapl:0", 1_500_000),
                              ("intel-rapl:1/intel-rapl:1:0", 6_000_000),
                              ("intel-rapl:2", 99_000_000)):
        count(place, place_of, counter)
    assert [meter.gained() for meter in found] == [0.5, 0.0, 0.0, 2.0]
    assert [meter.gained() for meter in found] == [0.0] * 4


def test_cores_of_a_package_are_not_added_to_it(tmp_path: Path) -> None:
    assert names(packages(rapl(tmp_path, EPYC))) == ["package-0"]


def test_no_process_and_no_thread_reads_a_counter(tmp_path: Path) -> None:
    """Reading the RAPL meters starts no process and no thread.

    By default, zeus would start a process for each RAPL domain.
    """
    import multiprocessing
    import threading

    threads = threading.active_count()
    for meter in packages(rapl(tmp_path, XEON_2S)):
        meter.gained()
    assert multiprocessing.active_children() == []
    assert threading.active_count() == threads


class Clock:
    """A clock that advances only if a test sets `now`."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def meter(tmp_path: Path, counter: int) -> tuple[RaplMeter, Path, Clock]:
    place, clock = rapl(tmp_path, {"intel-rapl:0": ("package-0", counter)}), Clock()
    file = place / "intel-rapl:0/energy_uj"
    return RaplMeter(About("a", "n1 package-0", CPU), file, SPAN, clock), place, clock


def test_a_counter_that_restarts_goes_on(tmp_path: Path) -> None:
    one, place, clock = meter(tmp_path, SPAN - 3_000_000)
    clock.now = 100.0
    count(place, "intel-rapl:0", 4_000_000)
    assert one.gained() == pytest.approx(7.0)


def test_a_gap_in_which_it_may_have_restarted_twice_is_no_number(tmp_path: Path) -> None:
    one, _, clock = meter(tmp_path, 0)
    clock.now = SPAN / 1e9 - 1  # seconds at 1000 W
    assert one.gained() == 0.0
    clock.now += SPAN / 1e9 + 1
    with pytest.raises(MeterError, match="n1 package-0: 263 s "):
        one.gained()
    clock.now += 10_000.0
    one.start()  # what was before does not count
    assert one.gained() == 0.0


@pytest.mark.parametrize("content", ["", "many\n", None])
def test_a_counter_that_is_damaged_is_no_number(content: str | None, tmp_path: Path) -> None:
    one, place, _ = meter(tmp_path, 0)
    file = place / "intel-rapl:0/energy_uj"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(MeterError, match="energy_uj"):
        one.gained()


def test_a_reading_takes_less_than_a_millisecond(tmp_path: Path) -> None:
    every = packages(rapl(tmp_path, XEON_2S))
    took = []
    for _ in range(50):
        started = time.perf_counter()
        for one in every:
            one.gained()
        took.append(time.perf_counter() - started)
    assert min(took) < 1e-3


def test_a_counter_that_only_root_may_read_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = rapl(tmp_path, EPYC)
    if os.geteuid() == 0:  # root may read all files, so the kernel's answer is given here
        import builtins

        real = builtins.open

        def refuse(file: Any, *words: Any, **named: Any) -> Any:
            if str(file).endswith("energy_uj"):
                raise PermissionError(13, "Permission denied", str(file))
            return real(file, *words, **named)

        monkeypatch.setattr(builtins, "open", refuse)
    else:
        (place / "intel-rapl:0/energy_uj").chmod(0)
    with pytest.raises(MeterError, match=r"root only .*chmod a\+r"):
        packages(place)


def test_a_machine_without_meters_gives_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "RAPL", (str(tmp_path / "none"),))
    found = find(Gpu(0))
    assert found.meters == []
    assert f"{tmp_path}/none does not exist" in found.not_readable[CPU]
    assert "--nv" in found.not_readable[GPU]
    (tmp_path / "none").mkdir()
    assert "no processor package" in find(None).not_readable[CPU]
    assert GPU not in find(None).not_readable


def test_a_package_that_is_missing_gives_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "RAPL", (str(rapl(tmp_path, EPYC)),))
    monkeypatch.setitem(sys.modules, "zeus.device.cpu", None)
    assert "zeus" in find(None).not_readable[CPU]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    return Nvml().install(monkeypatch)


@pytest.mark.parametrize(("gpu", "found"), [
    (Gpu(0, "00000000:af:00.0"), 1), (Gpu(5, "3b:00.0"), 0), (Gpu(1), 1), (Gpu(0), 0),
])
def test_an_nvidia_gpu_is_found_by_its_address_or_number(
    gpu: Gpu, found: int, nvml: Nvml
) -> None:
    one = gpu_meters.nvidia_meter(gpu)
    assert (one.about.identity, one.about.kind) == (f"GPU-{found}", GPU)
    nvml.millijoules[found] += 2500
    nvml.millijoules[1 - found] += 9000
    assert one.gained() == 2.5
    nvml.millijoules[found] = 0
    with pytest.raises(MeterError, match="reset"):
        one.gained()


def test_names_in_cuda_visible_devices_do_not_matter_to_an_address(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert gpu_meters.nvidia_meter(Gpu(0, "00000000:af:00.0")).about.identity == "GPU-1"


def test_gpus_of_other_jobs_do_not_hide_the_own_one(nvml: Nvml) -> None:
    nvml.denied = (0,)
    assert gpu_meters.nvidia_meter(Gpu(0, "00000000:af:00.0")).about.identity == "GPU-1"
    with pytest.raises(MeterError, match=r"3b:00\.0"):
        gpu_meters.nvidia_meter(Gpu(0, "00000000:3b:00.0"))


@pytest.mark.parametrize(("changed", "gpu", "reason"), [
    ({"mig": 1}, Gpu(0), "MIG"), ({"architecture": 4}, Gpu(0), "Volta"),
    ({}, Gpu(0, "00000000:01:00.0"), "01:00.0"), ({}, Gpu(2), "GPU 2"),
    ({}, Gpu(0, "here"), "here"),
])
def test_an_nvidia_gpu_without_a_counter_of_its_own_gives_a_reason(
    changed: dict[str, int], gpu: Gpu, reason: str, nvml: Nvml
) -> None:
    vars(nvml).update(changed)
    with pytest.raises(MeterError, match=reason):
        gpu_meters.nvidia_meter(gpu)


@pytest.fixture
def amdsmi(monkeypatch: pytest.MonkeyPatch) -> AmdSmi:
    from zeus.device.gpu import amd

    library = AmdSmi()
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    monkeypatch.setattr(amd, "amdsmi", library)
    monkeypatch.setattr(amd, "time", library)
    amd._hip_to_amdsmi_handle.cache_clear()
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return library


def test_both_dies_of_an_mi250x_have_one_meter(amdsmi: AmdSmi) -> None:
    every = [gpu_meters.amd_meter(Gpu(0, f"0000:{bus}:00.0")) for bus in amdsmi.BUSES]
    labels = names(every)
    assert labels == ["GPU 0000:c1:00.0"] * 2 + ["GPU 0000:c9:00.0"] * 2
    assert len({one.about.identity for one in every}) == 2
    for one in every:
        one.start()
    amdsmi.sleep(10.0)
    assert [one.gained() for one in every] == pytest.approx([4000, 4000, 3000, 3000])


def test_a_second_die_whose_first_is_hidden_gives_a_reason(
    amdsmi: AmdSmi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    with pytest.raises(MeterError, match="GPU 0, not visible"):
        gpu_meters.amd_meter(Gpu(0))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    with pytest.raises(MeterError, match="HIP_VISIBLE_DEVICES"):
        gpu_meters.amd_meter(Gpu(0))
