"""Compare versions of a host with an image: drivers, GPU architectures and GLIBC."""

from __future__ import annotations

import re

CUDA_DRIVERS = {11: 450, 12: 525, 13: 580}
"""A dictionary that maps a major version of CUDA to the oldest driver branch that supports it.

The driver branch supports all minor versions of this CUDA. Source:
docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1.
"""

ROCM_DRIVERS = {7: ("6.3", (6, 10, 5))}
"""Major version of ROCm -> oldest supported driver, and version that its kernel module reports.

Source: the compatibility matrix of the driver 30.30 for ROCm 7.2 (github.com/ROCm/amdgpu-docs, pull
request 97) lists ROCm 6.3 as the oldest release; `dkms status` of ROCm 6.3 prints amdgpu/6.10.5.
"""

Version = tuple[int, ...]


def numbers(text: str) -> Version:
    """Return the first version in a text as numbers: (4, 1, 4) for `(Open MPI) 4.1.4`."""
    found = re.search(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def compiled_for(capability: Version, architectures: list[str]) -> str:
    """Return whether code for the `architectures` runs on an NVIDIA GPU, and how.

    Machine code `sm_XY` runs on compute capabilities with the same first digit and a second digit
    of at least Y. The driver compiles `compute_XY` for all newer capabilities. Source: CUDA C++
    Programming Guide, sections "Binary Compatibility" and "PTX Compatibility".

    Returns:
        "code": the GPU runs the machine code; "compiled": the driver compiles the code at the first
        start; "": the code does not run.
    """
    result = ""
    for name in architectures:
        kind, _, digits = name.partition("_")
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return "code"
        if kind == "compute" and (major, minor) <= capability:
            result = "compiled"
    return result


def gfx(version: int) -> str:
    """Return the name of an AMD instruction set, such as gfx90a for the version number 90010."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
