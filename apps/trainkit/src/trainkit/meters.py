"""The energy meters of this machine, found through zeus (https://ml.energy/zeus).

A meter is the energy counter of a device: the GPU of this rank (NVML, AMD SMI), a processor
package, or the memory of a package (RAPL). No thread or process measures in the background.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

Kind = Literal["gpu", "cpu"]
GPU: Final[Kind] = "gpu"
CPU: Final[Kind] = "cpu"

RAPL = ("/sys/class/powercap/intel-rapl", "/zeus_sys/class/powercap/intel-rapl")
"""Folders of RAPL domains: on a host, and where zeus mounts them in a Docker container."""

MOST_WATTS = 1000.0
"""Assumed limit of the power of a processor package in watts, the same as in zeus 0.16 (module
`zeus.device.cpu.rapl`)."""


class MeterError(Exception):
    """Error for a meter that cannot be read; the message has the reason and, if known, a remedy."""


class About(NamedTuple):
    """The description of a meter, which ranks send to each other.

    Attributes:
        identity: identifier of the meter, which is equal on all ranks that can read it.
        label: name of the meter in logs and messages: the host and the device.
        kind: `GPU`, or `CPU` for a processor package or its memory.
    """

    identity: str
    label: str
    kind: Kind


class Meter(Protocol):
    """The interface of an energy counter of one device."""

    about: About

    def start(self) -> None:
        """Start to count; energy that was used before this call is not counted.

        Raises:
            MeterError: the meter cannot be read.
        """
        ...

    def gained(self) -> float:
        """Return the energy since `start` or the last call of this method, in joules.

        Raises:
            MeterError: the meter cannot be read.
        """
        ...


@dataclass(frozen=True)
class Gpu:
    """The GPU of a rank.

    Attributes:
        index: number among the GPUs that are visible to the framework.
        address: address on the PCI bus, or None if the framework does not report it.
    """

    index: int
    address: str | None = None


@dataclass
class Found:
    """The energy meters that a rank can read.

    Attributes:
        meters: the readable meters.
        not_readable: kind of device whose meters cannot be read -> reason.
    """

    meters: list[Meter] = field(default_factory=list)
    not_readable: dict[Kind, str] = field(default_factory=dict)


def machine() -> str:
    """Return the identifier that Linux generated when this machine booted.

    The identifier is the same in all containers of the machine, although a container may have its
    own host name.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


class RaplMeter:
    """The energy counter of a RAPL domain: the kernel's file `energy_uj`, in microjoules.

    The counter restarts at 0 after `span` microjoules, on many machines every few minutes. zeus
    would start one process per counter to poll the counter. This class needs no process: the energy
    is the difference of two readings modulo `span`, which is exact if the counter restarted at most
    once between them.
    https://docs.kernel.org/power/powercap/powercap.html
    """

    def __init__(
        self, about: About, file: Path, span: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.about, self._file, self._span, self._clock = about, file, span, clock
        self._last = self._read = 0.0
        self.start()

    def start(self) -> None:
        """Start to count the energy."""
        self._last, self._read = self._counter(), self._clock()

    def gained(self) -> float:
        """Return the energy since `start` or the last call, in joules."""
        counter, now = self._counter(), self._clock()
        if (now - self._read) * MOST_WATTS * 1e6 >= self._span:
            raise MeterError(
                f"{self.about.label}: {now - self._read:.0f} s passed between two readings, in "
                f"which the counter, of {self._span / 1e6:.0f} J, may have restarted repeatedly"
            )
        joules = (counter - self._last) % self._span / 1e6
        self._last, self._read = counter, now
        return joules

    def _counter(self) -> float:
        try:
            return float(self._file.read_bytes())
        except (OSError, ValueError) as error:
            raise MeterError(f"{self.about.label}: {self._file}: {error}") from error


def packages(folder: Path | None = None) -> list[Meter]:
    """Return the meters of all processor packages of this machine, and of their memory.

    The domain `psys`, the whole platform, is left out, because it includes the packages.

    Args:
        folder: folder of the RAPL domains; by default, the first folder of `RAPL` that exists.

    Raises:
        MeterError: the machine does not have RAPL, or this user may not read its counters.
    """
    places = [Path(one) for one in RAPL] if folder is None else [folder]
    place = next((one for one in places if one.is_dir()), None)
    if place is None:
        raise MeterError(
            f"{places[0]} does not exist: no RAPL counters (a virtual machine, a processor other "
            "than Intel or AMD, the kernel module intel_rapl_msr not loaded, or a container that "
            "hides them)"
        )
    from zeus.device.cpu import rapl  # not on machines without RAPL: it takes 0.25 s
    from zeus.device.cpu.common import ZeusCPUNoPermissionError

    meters: list[Meter] = []
    for index in sorted(_numbers(place)):
        if not _domain(place / f"intel-rapl:{index}").startswith("package"):
            continue
        try:
            cpu = rapl.RAPLCPU(index, str(place))
        except (ZeusCPUNoPermissionError, PermissionError) as error:
            raise MeterError(
                f"{place}/intel-rapl:{index}: energy_uj is readable by root only (since "
                "CVE-2020-8694): an administrator can permit it with chmod a+r"
            ) from error
        domains = {cpu.rapl_file.name: cpu.rapl_file}
        if cpu.dram is not None:
            domains[f"{cpu.rapl_file.name} dram"] = cpu.dram
        meters += [
            RaplMeter(about(name, CPU), Path(one.energy_uj_path), one.max_energy_range_uj)
            for name, one in domains.items()
        ]
    if not meters:
        raise MeterError(f"{place} has no processor package")
    return meters


def about(name: str, kind: Kind) -> About:
    """Return the description of this machine's meter `name`, of a device of the type `kind`."""
    return About(f"{machine()} {name}", f"{socket.gethostname()} {name}", kind)


def _numbers(place: Path) -> Iterator[int]:
    """Yield the number N of each RAPL domain `intel-rapl:N` in the folder `place`.

    Subdomains, such as `intel-rapl:0:1`, are left out.
    """
    for path in place.glob("intel-rapl:*"):
        if found := re.fullmatch(r"intel-rapl:([0-9]{1,6})", path.name):
            yield int(found[1])


def _domain(path: Path) -> str:
    try:
        return (path / "name").read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise MeterError(f"{path / 'name'}: {error.strerror}") from error
