"""Whose GPUs an image is for, and whether this host has some: what an engine asks before a run."""

from __future__ import annotations

from pathlib import Path

from trimaran.images import definition
from trimaran.images.parts import Gpu

DEVICES: dict[Gpu, Path] = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}
"""The device file that a loaded driver makes, by vendor."""

APPTAINER: dict[Gpu, str] = {"nvidia": "--nv", "amd": "--rocm"}
"""Apptainer's option that shows devices and driver libraries of the host, by vendor."""


def vendor(name: str) -> Gpu | None:
    """Return whose GPUs the image called `name` is for; None: no GPU, or an image not from here."""
    if name not in definition.names():
        return None
    return definition.chain(definition.load(name))[0].gpu


def apptainer_options(name: str) -> list[str]:
    """Return Apptainer's options for the GPUs of this host that the image called `name` is for."""
    of = vendor(name)
    return [APPTAINER[of]] if of is not None and DEVICES[of].exists() else []
