"""The processor architectures of images, with the names that each tool uses for them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from trimaran.errors import BuildError

Architecture = Literal["amd64", "arm64"]
"""An architecture, by its name in Debian and in OCI images."""

ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)

MACHINES: dict[Architecture, str] = {"amd64": "x86_64", "arm64": "aarch64"}
"""A dictionary that maps an architecture to its name in the kernel, in wheels and in targets."""

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""The folder in which the kernel lists the emulators that it starts for foreign programs."""


def native() -> Architecture:
    """Return the architecture of this machine; "amd64" if images do not support its processor."""
    machine = platform.machine()
    return next((name for name, own in MACHINES.items() if own == machine), "amd64")


@dataclass(frozen=True)
class Emulation:
    """An emulator that the kernel starts for programs of another architecture.

    Attributes:
        enabled: whether the kernel uses it.
        flags: flags of the registration. With `F`, the kernel opens the emulator when it is
            registered, so that it also works in containers, which do not contain it.
    """

    enabled: bool
    flags: str


def emulation(architecture: Architecture) -> Emulation | None:
    """Return the emulator that is registered for `architecture`, or None if there is none."""
    try:
        text = (BINFMT / f"qemu-{MACHINES[architecture]}").read_text(encoding="utf-8")
    except OSError:
        return None
    lines = text.splitlines()
    flags = next((line[len("flags:"):] for line in lines if line.startswith("flags:")), "")
    return Emulation("enabled" in lines, flags.strip())


def require_processor(architecture: Architecture) -> bool:
    """Return whether programs of `architecture` are emulated on this machine.

    Raises:
        BuildError: they are neither native nor emulated; the hint says how to register an emulator.
    """
    if architecture == native():
        return False
    found = emulation(architecture)
    if found is not None and found.enabled and "F" in found.flags:
        return True
    reason = (
        "no emulator is registered" if found is None
        else "the registered emulator is disabled" if not found.enabled
        else "the registered emulator does not work in containers (its flags lack F)"
    )
    raise BuildError(
        f"this machine is {native()} and cannot run programs for {architecture}: {reason}",
        code="emulation-missing",
        hint="build on a machine of this architecture, or register an emulator as root: apt-get"
             " install qemu-user-static binfmt-support (and mount binfmt_misc on"
             f" {BINFMT} if it is not mounted)",
    )
