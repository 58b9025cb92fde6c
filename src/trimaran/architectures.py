"""The processor architectures of images, with the names that each tool uses for them."""

from __future__ import annotations

import platform
from typing import Literal, get_args

Architecture = Literal["amd64", "arm64"]
"""A processor architecture of images, by its name in Debian and in OCI images."""

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

MACHINES: dict[Architecture, str] = {"amd64": "x86_64", "arm64": "aarch64"}
"""A dictionary that maps an architecture to its name in the kernel, in wheels and in targets."""


def of_machine(machine: str) -> Architecture | None:
    """Return the architecture with the name `machine` in the kernel; None if no image is for it."""
    return next((name for name, own in MACHINES.items() if own == machine), None)


def parse(text: str) -> Architecture:
    """Return the architecture that a user has named.

    Raises:
        ValueError: no image is for it, or it has another name here, which the message gives.
    """
    for one in ARCHITECTURES:
        if one == text:
            return one
    other = f": {name}" if (name := other_name(text)) else ""
    raise ValueError(f"{text!r} is not {' or '.join(ARCHITECTURES)}{other}")


def other_name(word: object) -> str:
    """Return "aarch64 is called arm64 here" for the kernel's name of an architecture, or else "".

    Many tools print the kernel's names, so that users write them by mistake.
    """
    own = of_machine(word) if isinstance(word, str) else None
    return f"{word} is called {own} here" if own is not None else ""


def native() -> Architecture:
    """Return the architecture of this machine; "amd64" if images do not support its processor."""
    return of_machine(platform.machine()) or "amd64"


def is_emulated(architecture: Architecture, machine: str | None = None) -> bool:
    """Return whether a machine can run programs of `architecture` only by an emulator.

    Args:
        architecture: the architecture of the programs.
        machine: name of the machine's architecture in the kernel; None: that of this machine.
    """
    return (machine or platform.machine()) != MACHINES[architecture]


def option(architecture: Architecture) -> str:
    """Return the option of a command that names `architecture`; empty for that of this machine."""
    return "" if architecture == native() else f" --arch {architecture}"


def ending(architecture: Architecture, mark: str) -> str:
    """Return the part of a file name that states the architecture, such as `.arm64`.

    It is `mark` and the name of the architecture. For amd64, it is empty, because older file
    names do not state the architecture.
    """
    return "" if architecture == "amd64" else f"{mark}{architecture}"
