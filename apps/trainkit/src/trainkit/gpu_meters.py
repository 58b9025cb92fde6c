"""The energy meter of the GPU of a rank, found through zeus: NVML for NVIDIA, AMD SMI for AMD."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainkit.meters import GPU, About, Gpu, Meter, MeterError, about


class GpuMeter:
    """The energy counter of a GPU, in millijoules, which zeus reads from the driver.

    Args:
        about: the description of the meter.
        device: zeus' object for the GPU.
        every: zeus' object for all GPUs, or None if `device` was created without it.
            The meter keeps a reference to `every`, because zeus closes the driver's library when
            `every` is garbage-collected.
    """

    def __init__(self, about: About, device: Any, every: Any) -> None:
        self.about, self._device, self._every = about, device, every
        self._last = 0.0
        self.start()

    def start(self) -> None:
        """Start to count the energy."""
        self._last = self._counter()

    def gained(self) -> float:
        """Return the energy since `start` or the last call, in joules."""
        before, self._last = self._last, self._counter()
        if self._last < before:
            raise MeterError(f"{self.about.label}: the counter was reset")
        return (self._last - before) / 1000

    def _counter(self) -> float:
        try:
            return float(self._device.get_total_energy_consumption())
        except Exception as error:  # a fault of a driver must not end a training
            raise MeterError(f"{self.about.label}: {error}") from error


def gpu_meter(gpu: Gpu) -> Meter:
    """Return the meter of `gpu`.

    Raises:
        MeterError: the GPU cannot be found, or has no energy counter.
    """
    from zeus.device.gpu.amd import amdsmi_is_available
    from zeus.device.gpu.nvidia import nvml_is_available

    with _silent():
        if nvml_is_available():
            return nvidia_meter(gpu)
        if amdsmi_is_available():
            return amd_meter(gpu)
    raise MeterError(
        "neither NVML nor AMD SMI is available: in Apptainer they come with --nv and --rocm"
    )


def nvidia_meter(gpu: Gpu) -> Meter:
    """Return the meter of an NVIDIA GPU.

    The GPU is found by its PCI address, because NVML and CUDA number the GPUs of a machine
    differently, and `CUDA_VISIBLE_DEVICES` may contain names. If the address is unknown, the GPU is
    found by its number in zeus' list of GPUs.

    Raises:
        MeterError: the GPU is older than Volta, divided by MIG, or not found.
    """
    import pynvml
    from zeus.device.exception import ZeusBaseGPUError
    from zeus.device.gpu.nvidia import NVIDIAGPU, NVIDIAGPUs

    def address(one: Any) -> str:
        found = pynvml.nvmlDeviceGetPciInfo(one.handle).busId
        return found if isinstance(found, str) else str(found, "ascii")

    def opened() -> Iterator[Any]:
        for index in range(pynvml.nvmlDeviceGetCount()):
            # The count includes GPUs that this process has no permission to open, such as the GPUs
            # of other jobs if the batch system restricts access (NVML, nvmlDeviceGetCount_v2).
            with contextlib.suppress(ZeusBaseGPUError):
                yield NVIDIAGPU(index)

    whole = NVIDIAGPUs() if gpu.address is None else None
    device = _device(list(opened()) if whole is None else whole.gpus, gpu, address)
    with contextlib.suppress(pynvml.NVMLError):  # raised by GPUs without MIG
        if pynvml.nvmlDeviceGetMigMode(device.handle)[0]:
            raise MeterError("the GPU is divided by MIG, and its counter is that of all parts")
    if not device.supports_get_total_energy_consumption():
        raise MeterError(f"{device.get_name()} has no energy counter: GPUs have it since Volta")
    uuid = pynvml.nvmlDeviceGetUUID(device.handle)
    return GpuMeter(About(uuid, f"{socket.gethostname()} {uuid}", GPU), device, whole)


def amd_meter(gpu: Gpu) -> Meter:
    """Return the meter of an AMD GPU.

    Each of the two dies of an MI250 or MI250X is a GPU, but only the first die has a counter, which
    counts the energy of both dies. Therefore both GPUs have the same meter.

    Raises:
        MeterError: the GPU cannot be found, or has no valid energy counter.
    """
    import amdsmi
    from zeus.device.gpu.amd import AMDGPUs

    def address(one: Any) -> str:
        return str(amdsmi.amdsmi_get_gpu_device_bdf(one.handle))

    whole = AMDGPUs()
    every = whole.gpus
    if gpu.address is None and "ROCR_VISIBLE_DEVICES" in os.environ:
        raise MeterError("zeus does not follow ROCR_VISIBLE_DEVICES: use HIP_VISIBLE_DEVICES")
    device = _device(every, gpu, address)
    if not device.supports_get_total_energy_consumption():
        device = _first_die(every, device)
    # The address identifies the die in this machine. Serial numbers cannot be read everywhere.
    return GpuMeter(about(f"GPU {address(device)}", GPU), device, whole)


def _first_die(every: Any, device: Any) -> Any:
    """Return the GPU whose counter includes the energy of `device`, the second die of an MI250.

    Raises:
        MeterError: `device` is not the second die of an MI250, or the first die is not visible.
    """
    name, number = device.get_name(), device.gpu_index
    if "MI250" in name and number % 2 == 1:
        for one in every:
            if one.gpu_index == number - 1 and one.supports_get_total_energy_consumption():
                return one
        raise MeterError(f"the counter of {name} {number} is that of GPU {number - 1}, not visible")
    raise MeterError(f"{name} has no valid energy counter (ROCm/amdsmi issue 38)")


def _device(every: Sequence[Any], gpu: Gpu, address: Callable[[Any], str]) -> Any:
    """Return the GPU in `every` that has the address of `gpu`.

    If the address is unknown, return the GPU at the position `gpu.index` in `every`.
    """
    if gpu.address is None:
        if gpu.index >= len(every):
            raise MeterError(f"GPU {gpu.index} is not among the {len(every)} GPUs that zeus finds")
        return every[gpu.index]
    wanted = place(gpu.address)
    for device in every:
        if place(address(device)) == wanted:
            return device
    raise MeterError(f"no GPU with the PCI address {gpu.address} among those that zeus finds")


def place(address: str) -> tuple[int, int, int]:
    """Return the domain, bus and device numbers of a PCI address such as 00000000:3B:00.0.

    Raises:
        MeterError: `address` is not a PCI address.
    """
    found = re.fullmatch(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.\d)?",
                         address)
    if found is None:
        raise MeterError(f"{address!r} is not an address on a PCI bus")
    return int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress the log messages of zeus; a MeterError reports the same faults."""
    log = logging.getLogger("zeus")
    level = log.level
    log.setLevel(logging.CRITICAL)  # also clears caches, unlike assigning `level`
    try:
        yield
    finally:
        log.setLevel(level)
