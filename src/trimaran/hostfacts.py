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

FLAGS = (
    "avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8",
)
"""Instruction sets that deep learning on CPUs profits from; others are not recorded."""


class HostFacts(BaseModel):
    """What `run.json` records about the host.

    Attributes:
        cores: cores that this process may run on (its affinity mask).
        memory_gib: total memory, in GiB.
        accelerators: names of the GPUs that the driver lists.
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
        cpu_flags=[flag for flag in FLAGS if flag in flags],
        accelerators=_gpus(),
        python=platform.python_version(),
    )


def _processor() -> tuple[str, set[str]]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields.get("model name", platform.processor()), set(fields.get("flags", "").split())


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    result = process.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=20)
    return result.stdout.split("\n")[:-1] if result.returncode == 0 else []
