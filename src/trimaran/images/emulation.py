"""The emulation of another processor architecture on this machine."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from trimaran import process
from trimaran.architectures import MACHINES, Architecture, is_emulated
from trimaran.errors import BuildError, TrimaranError
from trimaran.images import definition
from trimaran.images.definition import Image

ANSWER_SECONDS = 10.0
"""Maximum time in which an emulator prints its version."""

BINFMT = Path("/proc/sys/fs/binfmt_misc")
"""The folder in which the kernel lists the emulators that it starts for foreign programs."""


def require_processor(architecture: Architecture) -> bool:
    """Return whether programs of `architecture` are emulated on this machine.

    Raises:
        BuildError: they are neither native nor emulated; the hint says how to register an emulator.
    """
    if not is_emulated(architecture):
        return False
    reason = _unusable(_registration(architecture))
    if reason is None:
        return True
    raise BuildError(
        f"this machine is {platform.machine()} and cannot run programs for {architecture}:"
        f" {reason}", code="emulation-missing",
        hint="build on a machine of this architecture, or register an emulator as root: apt-get"
             " install qemu-user-static binfmt-support (and mount binfmt_misc on"
             f" {BINFMT} if it is not mounted)",
    )


def require_for(image: Image) -> bool:
    """Return whether programs of `image` are emulated on this machine.

    Raises:
        BuildError: they are neither native nor emulated, or the emulator is older than the image
            needs.
    """
    if not require_processor(image.architecture):
        return False
    registration = _registration(image.architecture)
    oldest = definition.chain(image)[0].qemu
    emulator = _emulator(registration) if oldest else None
    if oldest is None or emulator is None:
        return True
    version, replaced = emulator
    name = registration.name
    register = f"update-binfmts --disable {name} && update-binfmts --enable {name}"
    if _numbers(version) < _numbers(oldest):
        reason = f"the registered emulator is QEMU {version}"
        hint = ("install a newer QEMU as root, and register it: on Debian 12, apt-get install -t"
                f" bookworm-backports qemu-user qemu-user-binfmt && {register}")
    elif replaced:
        reason = f"the kernel still runs the program that QEMU {version} has replaced"
        hint = f"register it again as root, on Debian: {register}"
    else:
        return True
    raise BuildError(
        f"{image.name} needs QEMU {oldest} or later for the emulation of {image.architecture},"
        f" and {reason}", code="emulation-outdated", hint=hint,
    )


def _registration(architecture: Architecture) -> Path:
    """Return the file in which the kernel describes the emulator for `architecture`."""
    return BINFMT / f"qemu-{MACHINES[architecture]}"


def _emulator(registration: Path) -> tuple[str, bool] | None:
    """Return the version of the registered QEMU, and whether the kernel runs an older program.

    With the flag F, the kernel keeps the program open that was registered, even if an upgrade of
    the package replaces its file. Return None if the version is unknown, such as that of a program
    that does not end.
    """
    known = re.search(r"(?m)^interpreter (.+)$", registration.read_text(encoding="utf-8"))
    if known is None:
        return None
    # The kernel may have registered a link, under whose name QEMU prints no version.
    program = Path(known[1]).resolve()
    try:
        printed = process.ask([str(program), "--version"], ANSWER_SECONDS).stdout
        replaced = program.stat().st_ctime > registration.stat().st_mtime
    except (TrimaranError, OSError):
        return None
    found = re.search(r"version (\d+(?:\.\d+)+)", printed)
    return (found[1], replaced) if found else None


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


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
