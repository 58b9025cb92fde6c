"""`environment.json`: arguments, software and hardware that affect the results of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainkit.strategy import Strategy

CPU_FLAGS = {
    "x86_64": ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    "aarch64": ("asimd", "sve", "sve2", "sme", "bf16", "i8mm"),
}
"""Processor architecture -> the instruction sets that determine which oneDNN kernels run.

An emulator may show the /proc/cpuinfo of its host, whose instruction sets its programs lack.
"""

VARIABLES = (
    "OMP_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "LD_PRELOAD",
    "DNNL_VERBOSE", "DNNL_DEFAULT_FPMATH_MODE", "ONEDNN_DEFAULT_FPMATH_MODE",
    "TF_ENABLE_ONEDNN_OPTS", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME",
    "OMPI_MCA_mpi_yield_when_idle", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
    "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_",
)
"""Environment variables that affect the speed of a training or the rounding of its sums."""


def environment(packages: Sequence[str], strategy: Strategy) -> dict[str, Any]:
    """Return the content of `environment.json`, with the versions of `packages`."""
    facts = strategy.facts()
    return {
        "python": platform.python_version(),
        "packages": versions(packages),
        "argv": sys.argv,
        "strategy": {
            "name": strategy.name, "device": facts["device"], "backend": strategy.backend,
        } | asdict(strategy.ranks),
        "cpu": _cpu(),
        "gpu": facts["gpu"],
        "allocator": allocator(),
        "threads": facts["threads"],
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Return the version of each of `packages`, or None for a package that is not installed."""
    return {name: _version(name) for name in packages}


def allocator() -> str:
    """Return the memory allocator that is in use: tcmalloc, jemalloc or glibc.

    The name is read from the memory map of the process, because the loader only warns if a library
    in LD_PRELOAD is missing, and the training is then several times slower.
    """
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    return next((name for name in ("tcmalloc", "jemalloc") if f"lib{name}" in mapped), "glibc")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_flags() -> list[str]:
    """Return the instruction sets in `CPU_FLAGS` that this machine supports."""
    facts = _cpuinfo()
    present = set(facts.get("flags", facts.get("Features", "")).split())
    return [flag for flag in CPU_FLAGS.get(platform.machine(), ()) if flag in present]


def cpu_model() -> str:
    """Return the name of the processor.

    An Arm processor has no name in /proc/cpuinfo: it is described by the numbers of its implementer
    and part, which `lscpu` translates into a name.
    """
    facts = _cpuinfo()
    if "model name" in facts:
        return facts["model name"]
    numbers = [facts[key] for key in ("CPU implementer", "CPU part") if key in facts]
    return " ".join([platform.machine(), *numbers])


def _cpu() -> dict[str, Any]:
    return {
        "model": cpu_model(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "flags": cpu_flags(),
    }


def _cpuinfo() -> dict[str, str]:
    """Return the properties that Linux lists for the last core."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
