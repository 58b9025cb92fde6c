"""Code for the commands of all container engines: environment, labels, transfers, GPUs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from trimaran import paths, process
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.bases import Base
from trimaran.images.definition import Image
from trimaran.images.parts import Gpu
from trimaran.launch.specification import Text, join
from trimaran.parsing import Malformed, parse_yaml
from trimaran.reporting import Reporter

PASSED_ON = ("HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "SOURCE_DATE_EPOCH")
"""The variables of the host that the process of an engine gets; it also gets PATH."""

FOR_THE_NETWORK = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)
"""Further variables of the host for a command with network access: proxies and certificates."""

SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""The folders of system programs, which are at the end of every PATH."""

MOMENT = "%Y-%m-%dT%H:%M:%SZ"
"""Format of a UTC date and time in labels and records."""


def lay_out(image: Image, file: str, folder: Path) -> None:
    """Copy the definition `file` and the files of `image` into the build folder `folder`.

    All copies get the mode 644, because the mode becomes part of the image, and the mode in a
    checkout depends on the umask of the user.
    """
    for name in (file, *image.files):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(definition.file_of(image, name), place)
        place.chmod(0o644)


def own_environment(*programs: str, network: bool = True) -> dict[str, str]:
    """Return a small environment for the process of an engine, without settings of the user.

    Args:
        programs: programs whose folders come first in PATH.
        network: whether to add the variables for the network, such as the address of a proxy.
            They are left out for a run: its environment is recorded, and the address may contain
            a password.
    """
    folders = dict.fromkeys([*(str(Path(program).parent) for program in programs), *SYSTEM_FOLDERS])
    env = {"PATH": os.pathsep.join(folders)}
    passed_on = (*PASSED_ON, *(FOR_THE_NETWORK if network else ()))
    return env | {name: os.environ[name] for name in passed_on if name in os.environ}


def search_path(first: Iterable[Text]) -> Text:
    """Return a value for PATH: the folders `first`, followed by the folders of system programs."""
    folders = dict.fromkeys([*first, *SYSTEM_FOLDERS])
    separated = [part for folder in folders for part in (os.pathsep, folder)]
    return join(*separated[1:])


def label_arguments(base: Base, horovod: str | None) -> Mapping[str, str]:
    """Return the build arguments that become labels of the image.

    `horovod` is the argument HOROVOD; None: the definition has no such argument.
    """
    checkout = paths.repository()
    return {
        "BASE_NAME": base.name,
        "BASE_DIGEST": base.digest,
        "CREATED": created(),
        "REVISION": process.git(checkout, "rev-parse", "HEAD") or "unknown",
        "SOURCE": _public(process.git(checkout, "config", "--get", "remote.origin.url") or ""),
        **({} if horovod is None else {"HOROVOD": horovod}),
    }


def created() -> str:
    """Return the date of a new image: SOURCE_DATE_EPOCH if it is set, else the current time."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(MOMENT)


def transfer(argv: Sequence[str], env: Mapping[str, str], reporter: Reporter) -> None:
    """Run an engine's command that pushes an image to a registry, or pulls an image from it.

    Raises:
        BuildError: the command failed.
    """
    process.follow(
        argv, " ".join(argv[:2]), reporter, env=env, what=f"`{process.shell_line(argv)}`",
        check=BuildError,
        hint="run the same command again: complete layers are not transferred again",
    )


def _public(url: str) -> str:
    """Return the URL `url` without user name, password, query and fragment.

    Return "unknown" if it is not an HTTP URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "unknown"
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


GPU_DEVICES: dict[Gpu, Path] = {"nvidia": Path("/dev/nvidiactl"), "amd": Path("/dev/kfd")}
"""A dictionary that maps a GPU vendor to a device file that exists when the driver is loaded."""

GPU_OPTION: dict[Gpu, str] = {"nvidia": "--nv", "amd": "--rocm"}
"""A dictionary that maps a GPU vendor to the Apptainer option that gives access to the GPUs.

The option mounts the host's devices and driver libraries.
"""


CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Folders in which Podman looks for specifications of the Container Device Interface (CDI)."""

CDI_KINDS: dict[Gpu, tuple[str, str]] = {
    "nvidia": ("nvidia.com/gpu", "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    "amd": ("amd.com/gpu", "amd-ctk cdi generate --output=/etc/cdi/amd.json"),
}
"""A dictionary that maps a GPU vendor to the CDI kind of its devices, and to a command.

The command writes the CDI specification of these devices.
"""


def gpu_vendor(name: str) -> Gpu | None:
    """Return the vendor of the GPUs that the image called `name` uses.

    Return None if the image uses no GPUs, or if this checkout does not define the image.
    """
    if name not in definition.names():
        return None
    return definition.chain(definition.load(name))[0].gpu


def apptainer_options(name: str) -> list[str]:
    """Return the options by which Apptainer gives the image `name` access to this host's GPUs."""
    of = gpu_vendor(name)
    return [GPU_OPTION[of]] if of is not None and GPU_DEVICES[of].exists() else []


def podman_options(name: str) -> list[str]:
    """Return the options by which Podman gives the image `name` access to this host's GPUs.

    Raises:
        BuildError: the driver is loaded, but no CDI specification describes the GPUs.
    """
    of = gpu_vendor(name)
    if of is None or not GPU_DEVICES[of].exists():
        return []
    kind, command = CDI_KINDS[of]
    if kind not in {_kind(path) for folder in CDI for path in folder.glob("*")}:
        raise BuildError(
            f"{name} uses GPUs, and Podman needs a CDI specification of {kind}, which is not in"
            f" {' or '.join(map(str, CDI))}", code="gpu-unavailable",
            hint=f"run `{command}` as root, or use --engine apptainer",
        )
    # A user without root may open AMD devices as a member of the groups video and render.
    return ["--device", f"{kind}=all", *(["--group-add", "keep-groups"] if of == "amd" else [])]


def _kind(path: Path) -> str:
    """Return the kind of device that the CDI specification `path` describes; "" for other files."""
    if path.suffix not in (".json", ".yaml"):
        return ""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8")).content
    except (OSError, UnicodeDecodeError, Malformed):
        return ""
    return str(content.get("kind", "")) if isinstance(content, dict) else ""
