"""The processor architectures of images, with the names that each tool uses for them."""

from __future__ import annotations

import platform
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
    return of_machine(platform.machine()) or "amd64"


def of_machine(machine: str) -> Architecture | None:
    """Return the architecture that the kernel calls `machine`; None if no image supports it."""
    return next((name for name, own in MACHINES.items() if own == machine), None)


def ending(architecture: Architecture, mark: str) -> str:
    """Return the part of a name that states an architecture: `mark` and its name.

    The part is empty for amd64, because older names do not state the architecture.
    """
    return "" if architecture == "amd64" else f"{mark}{architecture}"


def require_processor(architecture: Architecture) -> bool:
    """Return whether programs of `architecture` are emulated on this machine.

    Raises:
        BuildError: they are neither native nor emulated; the hint says how to register an emulator.
    """
    machine = platform.machine()
    if machine == MACHINES[architecture]:
        return False
    reason = _unusable(BINFMT / f"qemu-{MACHINES[architecture]}")
    if reason is None:
        return True
    raise BuildError(
        f"this machine is {machine} and cannot run programs for {architecture}: {reason}",
        code="emulation-missing",
        hint="build on a machine of this architecture, or register an emulator as root: apt-get"
             " install qemu-user-static binfmt-support (and mount binfmt_misc on"
             f" {BINFMT} if it is not mounted)",
    )


def _unusable(registration: Path) -> str | None:
    """Return why the kernel cannot start an emulator in containers, or None if it can.

    `registration` is the kernel's file about the emulator. With the flag F, the kernel opens the
    emulator when it is registered, so that containers, which do not contain it, can use it.
    """
    try:
        lines = registration.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "no emulator is registered"
    if "enabled" not in lines:
        return "the registered emulator is disabled"
    if not any(line.startswith("flags:") and "F" in line[len("flags:"):] for line in lines):
        return "the registered emulator does not work in containers (its flags lack F)"
    return None
