"""Describe the machine, and choose the environment variables of the contestants."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16",
         "asimd", "sve", "sve2", "bf16", "i8mm")
PACKAGES = (
    "torch", "tensorflow-cpu", "keras", "tf-keras", "nvidia-dali-cuda120", "nvidia-dali-cuda130",
    "pillow", "simplejpeg", "transformers", "accelerate",
)
HERE = Path(__file__).parent
GPU_NAMES = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
IDLE = 0.3
"""Maximum load average of an idle machine before a benchmark starts."""
OTHERS = 0.03
"""Maximum share of the cores that other processes and the hypervisor use in a valid benchmark."""

DEBIAN = f"lib/{platform.machine()}-linux-gnu"
"""Folder below /usr in which Debian has the libraries for the processor of this machine."""

LIBRARIES = {
    "tcmalloc": (f"{DEBIAN}/libtcmalloc_minimal.so.4", "lib64/libtcmalloc_minimal.so.4"),
    "LLVM's OpenMP": (f"{DEBIAN}/libomp.so.5", "lib64/libomp.so"),
}
"""Name of each library that the CPU images preload -> its possible paths below /usr.

The definition containers/frameworks/torch-cpu/image.yaml lists these libraries.
"""

TUNING = ("LD_PRELOAD", "KMP_", "OMP_", "GOMP_", "MALLOC_", "TCMALLOC_", "ONEDNN_", "DNNL_",
          "GLIBC_TUNABLES", "TORCHINDUCTOR_", "PYTORCH_")
"""Prefixes of the names of environment variables that a stock run must not have."""


def stock_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without the variables of `TUNING`.

    The contestant then uses glibc's malloc and the OpenMP of PyTorch's wheel.
    """
    return {key: value for key, value in environment.items() if not key.startswith(TUNING)}


def our_environment(
    environment: Mapping[str, str], root: Path = Path("/usr")
) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables with which the app runs, and notes for the report.

    These are `environment` and an LD_PRELOAD of the libraries that the CPU images preload. The
    notes name the libraries that this host lacks. If `environment` has an LD_PRELOAD already, it is
    returned unchanged.

    Args:
        environment: variables of this process.
        root: folder below which the libraries are searched.
    """
    if environment.get("LD_PRELOAD"):
        return dict(environment), [f"ours: LD_PRELOAD={environment['LD_PRELOAD']}, as given"]
    found, notes = [], []
    for name, places in LIBRARIES.items():
        path = next((root / place for place in places if (root / place).exists()), None)
        if path is None:
            notes.append(f"ours: {name} is not on this host, so ours ran without it")
        else:
            found.append(str(path))
    preload = {"LD_PRELOAD": ":".join(found)} if found else {}
    return {**environment, **preload}, [*notes, f"ours: LD_PRELOAD={':'.join(found) or '(none)'}"]


def facts(cores: list[int]) -> dict[str, Any]:
    """Return the facts that affect the figures: processor, cores, memory, versions, load, date."""
    model, flags = _processor()
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %z"),
        "command": " ".join(["python", *sys.argv]),
        "revision": _output("git", "-C", str(HERE), "describe", "--always", "--dirty"),
        "processor": model,
        "flags": [flag for flag in FLAGS if flag in flags],
        "cores": cores,
        "memory_gib": round(pages * page / 2**30, 1),
        "gpus": (_output(*GPU_NAMES) or "").splitlines(),
        "kernel": platform.release(),
        "image": image(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "load_before": round(os.getloadavg()[0], 2),
    }


def image(labels: Path = Path("/.singularity.d/labels.json")) -> str | None:
    """Return the title and revision of the Apptainer image of this process; None: no image."""
    try:
        found = json.loads(labels.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    title, revision = (found.get(f"org.opencontainers.image.{key}", "unknown")
                       for key in ("title", "revision"))
    return f"{title} of revision {revision[:12]}"


class Meter:
    """A meter of the use of the cores by other processes since the creation of this object.

    Args:
        cores: numbers of the cores.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores, self._start, self._own = cores, time.perf_counter(), _own_seconds()
        self._busy, self._stolen = core_seconds(_stat(), cores)

    def shares(self) -> tuple[float, float]:
        """Return the fractions of the cores' time that other processes and the hypervisor used."""
        whole = (time.perf_counter() - self._start) * len(self.cores)
        busy, stolen = core_seconds(_stat(), self.cores)
        own = _own_seconds() - self._own
        return max(0.0, busy - self._busy - own) / whole, (stolen - self._stolen) / whole


def core_seconds(stat: str, cores: Sequence[int]) -> tuple[float, float]:
    """Return (busy, stolen): seconds of `cores` since boot, from the text of /proc/stat.

    Stolen is the time that the hypervisor gave to other virtual machines.
    """
    busy, stolen, tick = 0, 0, os.sysconf("SC_CLK_TCK")
    for line in stat.splitlines():
        name, *words = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, words[:8])
            busy += user + nice + system + irq + softirq
            stolen += steal
    return busy / tick, stolen / tick


def _stat() -> str:
    return Path("/proc/stat").read_text(encoding="utf-8")


def _own_seconds() -> float:
    return sum(os.times()[:4])  # user and system, of this process and its ended children


def _processor() -> tuple[str, set[str]]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", ""))
    return fields.get("model name", platform.machine()), set(flags.split())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*argv: str) -> str | None:
    if shutil.which(argv[0]) is None:
        return None
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
