"""Collect the facts of the machine of a run, as the operating system reports them."""

from __future__ import annotations

import os
import platform
import shutil
from functools import cache
from pathlib import Path

import psutil
from pydantic import BaseModel

from trimaran import process
from trimaran.errors import TrimaranError

FLAGS = {
    "x86_64": (
        "avx", "avx2", "f16c", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl",
        "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_fp16",
        "amx_int8",
    ),
    "aarch64": (
        "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "svebf16", "svei8mm", "sve2", "sme",
    ),
    "ppc64le": (),  # its /proc/cpuinfo lists no instruction sets
}
"""Architecture -> instruction sets that speed up deep learning on CPUs, and are recorded.

The names are taken from /proc/cpuinfo (Linux, arch/x86/include/asm/cpufeatures.h and
arch/arm64/kernel/cpuinfo.c).
"""

ARM_PROCESSORS = {
    "0x41 0xd07": "Arm Cortex-A57",
    "0x41 0xd08": "Arm Cortex-A72",
    "0x41 0xd0c": "Arm Neoverse-N1",
    "0x41 0xd40": "Arm Neoverse-V1",
    "0x41 0xd49": "Arm Neoverse-N2",
    "0x41 0xd4f": "Arm Neoverse-V2",
    "0x41 0xd83": "Arm Neoverse-V3AE",
    "0x41 0xd84": "Arm Neoverse-V3",
    "0x41 0xd8e": "Arm Neoverse-N3",
    "0x43 0x0af": "Cavium ThunderX2-99xx",
    "0x46 0x001": "Fujitsu A64FX",
    "0x48 0xd01": "HiSilicon Kunpeng-920",
    "0xc0 0xac3": "Ampere-1",
    "0xc0 0xac4": "Ampere-1a",
}
"""Numbers of implementer and part in /proc/cpuinfo -> name of the processor core.

Arm processors have no names there. The numbers are those of `lscpu` (util-linux,
sys-utils/lscpu-arm.c); only processors of servers are listed.
"""

KFD = Path("/sys/class/kfd/kfd/topology/nodes")
"""Folder in which the AMD driver describes its GPUs (Linux, drivers/gpu/drm/amd/amdkfd)."""

DRM = Path("/sys/class/drm")
AMD = "4098"  # PCI vendor ID 0x1002


CAP_SYS_RESOURCE = 24
"""Number of the capability that engines need as root; containers often lack it."""


class HostFacts(BaseModel):
    """The facts of the host in `run.json`.

    Attributes:
        cores: number of cores that this process may use (its affinity mask).
        memory_gib: total memory in GiB.
        cpu_flags: instruction sets from `FLAGS`.
        accelerators: names of the GPUs as the drivers report them, NVIDIA's first, then AMD's.
        python: version of the tool's Python; None if `run.sh` of a bundle wrote the file.
    """

    hostname: str
    os: str
    kernel: str
    architecture: str
    processor: str
    cores: int
    memory_gib: float
    cpu_flags: list[str]
    accelerators: list[str]
    python: str | None


@cache
def host_facts() -> HostFacts:
    """Return the facts of this machine."""
    model, flags = _processor()
    return HostFacts(
        hostname=platform.node(),
        os=_os_name(),
        kernel=platform.release(),
        architecture=platform.machine(),
        processor=model,
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        cpu_flags=[flag for flag in FLAGS.get(platform.machine(), ()) if flag in flags],
        accelerators=[*_nvidia(), *amd()],
        python=platform.python_version(),
    )


def root_lacks_capabilities() -> bool:
    """Return True if the user is root in a container without `CAP_SYS_RESOURCE`."""
    if os.geteuid() != 0:
        return False
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1
    return False


def _processor() -> tuple[str, set[str]]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features") or ""  # x86-64, aarch64
    if "model name" in fields:
        return fields["model name"], set(flags.split())
    numbers = [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]
    model = arm_processor(" ".join(numbers)) if numbers else platform.processor()
    return model, set(flags.split())


def arm_processor(numbers: str) -> str:
    """Return the name of an Arm processor with these numbers, such as `0x41 0xd4f`.

    An unlisted processor is named by its numbers.
    """
    return ARM_PROCESSORS.get(numbers, f"Arm processor {numbers}")


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _nvidia() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        result = process.ask(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 20)
    except TrimaranError:  # the driver hangs: report no GPU instead of failing
        return []
    return result.stdout.split("\n")[:-1] if result.returncode == 0 else []


def amd(kfd: Path = KFD, drm: Path = DRM) -> list[str]:
    """Return the names of AMD GPUs in the order of the driver's topology.

    A name contains the product, if the card reports it, and the instruction set: `AMD Instinct
    MI250X (gfx90a)`. Entries of the topology without compute units are CPUs,
    which are left out.
    """
    nodes = sorted(kfd.glob("[0-9]*"), key=lambda node: int(node.name))
    found = []
    for node in nodes:
        facts = dict(line.split(" ", 1) for line in _text(node / "properties").splitlines()
                     if " " in line)
        if facts.get("vendor_id") == AMD and int(facts.get("simd_count", 0)) > 0:
            card = drm / f"renderD{facts.get('drm_render_minor')}" / "device/product_name"
            product = _text(card).strip().removeprefix("AMD ") or "GPU"
            found.append(f"AMD {product} ({_gfx(int(facts.get('gfx_target_version', 0)))})")
    return found


def _gfx(version: int) -> str:
    """Return the name of a GPU instruction set: 90010 is gfx90a (major 9, minor 0, step 10)."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _text(path: Path) -> str:
    """Return the content of a system file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
