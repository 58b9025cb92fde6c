"""Facts of the machine that a run happens on, as far as the operating system tells them."""

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
    "aarch64": ("asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "sve2", "sme"),
}
"""Architecture -> instruction sets that deep learning on CPUs profits from; others are not
recorded. The names are those of /proc/cpuinfo: Linux, arch/x86/include/asm/cpufeatures.h and
arch/arm64/kernel/cpuinfo.c."""

KFD = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where the driver of AMD's GPUs describes them: Linux, drivers/gpu/drm/amd/amdkfd."""

DRM = Path("/sys/class/drm")
AMD = "4098"  # vendor in PCI's list, 0x1002


CAP_SYS_RESOURCE = 24
"""Number of the capability that engines ask for as root, and that containers often lack."""


class HostFacts(BaseModel):
    """What `run.json` records about the host.

    Attributes:
        cores: cores that this process may run on (its affinity mask).
        memory_gib: total memory, in GiB.
        accelerators: names of the GPUs that the drivers list, NVIDIA's, then AMD's.
        python: of the tool; None where the run needed no tool (`run.sh` of a bundle).
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
    """Whether this is root in a container that withholds what engines want of it."""
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
    flags = fields.get("flags") or fields.get("Features") or ""  # of x86-64, of aarch64
    return fields.get("model name", platform.processor()), set(flags.split())


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
    except TrimaranError:  # its driver hangs: a fact of this machine, too, and no fault
        return []
    return result.stdout.split("\n")[:-1] if result.returncode == 0 else []


def amd(kfd: Path = KFD, drm: Path = DRM) -> list[str]:
    """Return the names of AMD's GPUs, in the order of the driver's topology.

    Each is the product's name, where the card tells one, and its instruction set: `AMD
    Instinct MI250X (gfx90a)`. A node of the topology that is a processor has no compute units.
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
    """Return the name of an instruction set: 90010 is gfx90a (major, minor, step; the last hex)."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def _text(path: Path) -> str:
    """Return what a file of the system says; "" where it does not."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
