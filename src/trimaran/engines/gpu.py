"""Whose GPUs an image is for, and whether this host has some: what an engine asks before a run."""

from __future__ import annotations

from pathlib import Path

from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.parts import Gpu
from trimaran.parsing import Malformed, parse_yaml

DEVICES: dict[Gpu, Path] = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}
"""The device file that a loaded driver makes, by vendor."""

APPTAINER: dict[Gpu, str] = {"nvidia": "--nv", "amd": "--rocm"}
"""Apptainer's option that shows devices and driver libraries of the host, by vendor."""


CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where the Container Device Interface has its specifications, as Podman looks them up."""

CDI_KINDS: dict[Gpu, tuple[str, str]] = {
    "nvidia": ("nvidia.com/gpu", "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    "amd": ("amd.com/gpu", "amd-ctk cdi generate --output=/etc/cdi/amd.json"),
}
"""The kind of device in a specification, and the command that writes one, by vendor."""


def vendor(name: str) -> Gpu | None:
    """Return whose GPUs the image called `name` is for; None: no GPU, or an image not from here."""
    if name not in definition.names():
        return None
    return definition.chain(definition.load(name))[0].gpu


def apptainer_options(name: str) -> list[str]:
    """Return Apptainer's options for the GPUs of this host that the image called `name` is for."""
    of = vendor(name)
    return [APPTAINER[of]] if of is not None and DEVICES[of].exists() else []


def podman_options(name: str) -> list[str]:
    """Return Podman's options for the GPUs of this host that the image called `name` is for.

    Raises:
        BuildError: there is a driver, and no specification by which Podman could hand GPUs in.
    """
    of = vendor(name)
    if of is None or not DEVICES[of].exists():
        return []
    kind, command = CDI_KINDS[of]
    if kind not in {_kind(path) for folder in CDI for path in folder.glob("*")}:
        raise BuildError(
            f"{name} is for GPUs, and no CDI specification of {kind} is in"
            f" {' or '.join(map(str, CDI))}, by which Podman hands them in",
            hint=f"let root run `{command}`, or use --engine apptainer",
        )
    # To AMD's devices a user without root gets by groups: video and render.
    return ["--device", f"{kind}=all", *(["--group-add", "keep-groups"] if of == "amd" else [])]


def _kind(path: Path) -> str:
    """Return the kind of device that a specification is about; "" where it is none."""
    if path.suffix not in (".json", ".yaml"):
        return ""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8")).content
    except (OSError, UnicodeDecodeError, Malformed):
        return ""
    return str(content.get("kind", "")) if isinstance(content, dict) else ""
