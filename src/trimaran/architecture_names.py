"""The names of processor architectures, for definitions, recipes and the site file."""

from __future__ import annotations

from typing import Literal, get_args

Architecture = Literal["amd64", "arm64"]
"""A processor architecture of images, by its name in Debian and in OCI images."""

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

MACHINES: dict[Architecture, str] = {"amd64": "x86_64", "arm64": "aarch64"}
"""A dictionary that maps an architecture to its name in the kernel, in wheels and in targets."""


def of_machine(machine: str) -> Architecture | None:
    """Return the architecture with the name `machine` in the kernel; None if no image is for it."""
    return next((name for name, own in MACHINES.items() if own == machine), None)
