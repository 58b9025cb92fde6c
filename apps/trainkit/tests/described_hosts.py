"""Substitutes for the meters of hosts: RAPL folders, and driver libraries of GPUs.

No machine of the project has RAPL or an AMD GPU, so nothing here was recorded. The folders follow
https://docs.kernel.org/power/powercap/powercap.html; the libraries have the functions that zeus
0.16 calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SPAN = 262_143_328_850
"""Energy in microjoules at which the counter of many Intel processors restarts at 0
(max_energy_range_uj)."""

XEON_2S: Mapping[str, tuple[str, int]] = {
    "intel-rapl:0": ("package-0", 1_000_000), "intel-rapl:0/intel-rapl:0:0": ("dram", 2_000_000),
    "intel-rapl:1": ("package-1", 3_000_000), "intel-rapl:1/intel-rapl:1:0": ("dram", 4_000_000),
    "intel-rapl:2": ("psys", 9_000_000),
}
"""RAPL domains of a server: two Intel packages, their memory, and the whole platform (psys).

Path of a domain -> its name, and its energy counter in microjoules."""

EPYC: Mapping[str, tuple[str, int]] = {
    "intel-rapl:0": ("package-0", 5_000_000), "intel-rapl:0/intel-rapl:0:0": ("core", 1_000_000),
}
"""RAPL domains, as in `XEON_2S`, of a server with one AMD package and no counter for memory."""


def rapl(folder: Path, domains: Mapping[str, tuple[str, int]]) -> Path:
    """Write a folder of RAPL domains, and return its path.

    Args:
        folder: folder in which `intel-rapl` is created.
        domains: path of a domain -> its name, and its energy counter in microjoules.
    """
    place = folder / "intel-rapl"
    for path, (name, counter) in domains.items():
        (place / path).mkdir(parents=True)
        (place / path / "name").write_text(f"{name}\n")
        (place / path / "max_energy_range_uj").write_text(f"{SPAN}\n")
        (place / path / "energy_uj").write_text(f"{counter}\n")
    return place


def count(place: Path, path: str, counter: int) -> None:
    """Set the energy counter of the domain at `path` to `counter` microjoules."""
    (place / path / "energy_uj").write_text(f"{counter}\n")


class Nvml:
    """A substitute for NVML on a machine with two GPUs of one model.

    `denied` has the numbers of GPUs that NVML counts, but that this process must not use.
    """

    NAMES = ("00000000:3B:00.0", "00000000:AF:00.0")

    def __init__(self) -> None:
        self.millijoules = [5_000, 7_000]
        self.mig, self.architecture = 0, 9
        self.denied: tuple[int, ...] = ()

    def install(self, monkeypatch: Any) -> Nvml:
        """Replace the functions of pynvml that zeus and trainkit call."""
        import pynvml

        def unsupported(handle: int) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        def handle(index: int) -> int:
            if index in self.denied:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
            return index

        functions: dict[str, Any] = {
            "nvmlInit": lambda: None, "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: len(self.NAMES),
            "nvmlDeviceGetHandleByIndex": handle,
            "nvmlDeviceGetC2cModeInfoV": unsupported,
            "nvmlDeviceGetPciInfo": lambda at: SimpleNamespace(busId=self.NAMES[at]),
            "nvmlDeviceGetUUID": lambda at: f"GPU-{at}",
            "nvmlDeviceGetName": lambda at: "A described GPU",
            "nvmlDeviceGetMigMode": lambda at: [self.mig, self.mig],
            "nvmlDeviceGetArchitecture": lambda at: self.architecture,
            "nvmlDeviceGetTotalEnergyConsumption": lambda at: self.millijoules[at],
        }
        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, function)
        return self


class AmdSmi(ModuleType):
    """A substitute for AMD SMI on a machine with two MI250X.

    An MI250X has two GPUs, but only one energy counter, which belongs to the even GPU. As in
    ROCm 6, a single call that closes the library closes it for all callers.
    """

    class AmdSmiException(Exception):  # noqa: N818 - the library's name
        """Base class of the library's errors."""

    class AmdSmiLibraryException(AmdSmiException):
        """An error of the library."""

    AmdSmiInitFlags = SimpleNamespace(INIT_AMD_GPUS=2)
    WATTS = (400, 0, 300, 0)
    BUSES = ("c1", "c6", "c9", "ce")

    def __init__(self) -> None:
        super().__init__("amdsmi")
        self.seconds, self.is_open = 0.0, False

    def amdsmi_init(self, flags: int) -> None:
        """Open the library."""
        self.is_open = True

    def amdsmi_shut_down(self) -> None:
        """Close the library."""
        self.is_open = False

    def amdsmi_get_processor_handles(self) -> list[int]:
        """Return the handles of all GPUs."""
        return list(range(len(self.WATTS)))

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> dict[str, int]:
        """Return the number that HIP gives to a GPU."""
        return {"hip_id": handle}

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, str]:
        """Return the model of a GPU."""
        return {"market_name": "AMD Instinct MI250X"}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        """Return the power of a GPU in watts."""
        return {"current_socket_power": "N/A", "average_socket_power": self.WATTS[handle]}

    def amdsmi_get_energy_count(self, handle: int) -> dict[str, float]:
        """Return the energy counter of a GPU, and the size of the counter's unit in microjoules."""
        self._refuse_closed()
        units = self.WATTS[handle] * self.seconds / 15.3e-6
        return {"energy_accumulator": units, "counter_resolution": 15.3}

    def amdsmi_get_gpu_device_bdf(self, handle: int) -> str:
        """Return the PCI address of a GPU."""
        self._refuse_closed()
        return f"0000:{self.BUSES[handle]}:00.0"

    def _refuse_closed(self) -> None:
        if not self.is_open:
            raise self.AmdSmiLibraryException("AMDSMI_STATUS_NOT_INIT")

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds`."""
        self.seconds += seconds
