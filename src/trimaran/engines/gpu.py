"""The vendor of the GPUs that an image uses, and the options that show them to a container."""

from __future__ import annotations

from pathlib import Path

from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.parts import Gpu
from trimaran.parsing import Malformed, parse_yaml

DEVICES: dict[Gpu, Path] = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}
"""Vendor -> device file that exists when the driver is loaded."""

APPTAINER: dict[Gpu, str] = {"nvidia": "--nv", "amd": "--rocm"}
"""Vendor -> option of Apptainer that shows devices and driver libraries of the host."""


CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Folders in which Podman looks for specifications of the Container Device Interface (CDI)."""

CDI_KINDS: dict[Gpu, tuple[str, str]] = {
    "nvidia": ("nvidia.com/gpu", "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    "amd": ("amd.com/gpu", "amd-ctk cdi generate --output=/etc/cdi/amd.json"),
}
"""Vendor -> kind of device in a CDI specification, and the command that writes one."""


def vendor(name: str) -> Gpu | None:
    """Return the vendor of the GPUs that the image called `name` uses.

    None: the image uses no GPUs, or this checkout does not define it.
    """
    if name not in definition.names():
        return None
    return definition.chain(definition.load(name))[0].gpu


def apptainer_options(name: str) -> list[str]:
    """Return the options with which Apptainer shows GPUs of this host to the image `name`."""
    of = vendor(name)
    return [APPTAINER[of]] if of is not None and DEVICES[of].exists() else []


def podman_options(name: str) -> list[str]:
    """Return the options with which Podman shows GPUs of this host to the image `name`.

    Raises:
        BuildError: the driver is loaded, but no CDI specification describes the GPUs.
    """
    of = vendor(name)
    if of is None or not DEVICES[of].exists():
        return []
    kind, command = CDI_KINDS[of]
    if kind not in {_kind(path) for folder in CDI for path in folder.glob("*")}:
        raise BuildError(
            f"{name} uses GPUs, and Podman needs a CDI specification of {kind}, which is not in"
            f" {' or '.join(map(str, CDI))}",
            code="gpu-unavailable",
            hint=f"run `{command}` as root, or use --engine apptainer",
        )
    # A user without root may open AMD devices as a member of the groups video and render.
    return ["--device", f"{kind}=all", *(["--group-add", "keep-groups"] if of == "amd" else [])]


def _kind(path: Path) -> str:
    """Return the kind of device in a CDI specification; "" if the file is not one."""
    if path.suffix not in (".json", ".yaml"):
        return ""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8")).content
    except (OSError, UnicodeDecodeError, Malformed):
        return ""
    return str(content.get("kind", "")) if isinstance(content, dict) else ""
