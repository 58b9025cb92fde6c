"""Check additions to a run: overlays and packages of the user, binds and flags of the site file."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, computed_field

from trimaran.engines import Engine, selection
from trimaran.errors import UsageError, unreadable
from trimaran.files import sha256
from trimaran.launch.specification import Mount
from trimaran.site_file import FabricName, hides

if TYPE_CHECKING:
    from trimaran.images.definition import Image

VENV_INSIDE = "/venv"
"""Path in the container at which the user's `site-packages` folder is mounted."""

PAGE = "see containers/EXTENDING.md"


class Modification(BaseModel):
    """An addition to an image; `sha256` is the hash of a file, or the `tree_sha256` of a folder."""

    kind: Literal["overlay", "venv"]
    path: str
    sha256: str


@dataclass(frozen=True)
class Extension:
    """The additions to an image for one run, as absolute paths.

    Attributes:
        overlay: folder with a subfolder `upper`, or a file system image, to mount over the image.
        packages: `site-packages` of a virtual environment for the Python of the image.
    """

    overlay: Path | None = None
    packages: Path | None = None

    def modifications(self) -> list[Modification]:
        """Return the overlay and the virtual environment, each with its hash, for `run.json`."""
        found = []
        if self.overlay is not None:
            layer = self.overlay / "upper" if self.overlay.is_dir() else self.overlay
            found.append(_modification("overlay", self.overlay, layer))
        if self.packages is not None:
            found.append(_modification("venv", self.packages, self.packages))
        return found

    def mounts(self) -> list[Mount]:
        """Return the mounts that the container needs."""
        return [Mount(str(self.packages), VENV_INSIDE)] if self.packages else []

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return `env` with a PYTHONPATH that finds the packages before those of the image."""
        if self.packages is None:
            return dict(env)
        path = [VENV_INSIDE, *filter(None, [env.get("PYTHONPATH")])]
        return {**env, "PYTHONPATH": os.pathsep.join(path)}


def extension(
    image: Image, engine: Engine, *, overlay: Path | None, venv: Path | None
) -> Extension:
    """Check the values of `--overlay` and `--venv`, and return them as an extension.

    Raises:
        UsageError: the engine does not support an option, or the path is not an overlay or
            virtual environment.
    """
    if overlay is not None:
        if not engine.mounts_images:
            able = " or ".join(n for n, found in selection.every().items() if found.mounts_images)
            raise UsageError(f"--overlay needs {able}, but the engine is {engine.name}",
                             code="engine-unsuitable", hint=PAGE)
        overlay = _overlay(overlay.absolute())
    if venv is not None and not engine.container:
        raise UsageError(f"--venv needs a container, but the engine is {engine.name}",
                         code="engine-unsuitable", hint=PAGE)
    return Extension(overlay, _packages(image, venv.absolute()) if venv else None)


def tree_sha256(folder: Path) -> str:
    """Return a hash of the names, types, modes, contents and link targets of all files in `folder`.

    Raises:
        UsageError: a file or folder in `folder` cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.rglob("*")):
            mode = path.lstat().st_mode
            content = ""
            if stat.S_ISREG(mode):
                content = sha256(path)
            elif stat.S_ISLNK(mode):
                content = os.readlink(path)  # noqa: PTH115 - readlink() of pathlib tidies the text
            entry = (os.fspath(path.relative_to(folder)), f"{mode:o}", content)
            digest.update(repr(entry).encode())
    except OSError as error:
        raise unreadable(error.filename, error) from error
    return digest.hexdigest()


def _modification(kind: Literal["overlay", "venv"], named: Path, content: Path) -> Modification:
    hashed = tree_sha256(content) if content.is_dir() else sha256(content)
    return Modification(kind=kind, path=str(named), sha256=hashed)


def _overlay(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"--overlay {path}: no such file", code="file-missing", hint=PAGE)
    if path.is_dir() and not (path / "upper").is_dir():
        raise UsageError(f"--overlay {path}: the folder has no subfolder 'upper'",
                         code="argument-invalid", hint=PAGE)
    if {",", ":"} & set(str(path)):
        raise UsageError(f"--overlay {path}: Apptainer allows no ',' and no ':' in the path",
                         code="argument-invalid", hint="rename the overlay")
    return path


def _packages(image: Image, venv: Path) -> Path:
    from trimaran.images import definition  # not needed to read what was added

    python = definition.interpreter(image)
    packages = venv / "lib" / f"python{python.version}" / "site-packages"
    if not packages.is_dir():
        others = sorted(path.parent.name for path in venv.glob("lib/python*/site-packages"))
        found = f"it is for {', '.join(others)}" if others else "it is not a virtual environment"
        raise UsageError(
            f"--venv {venv}: {image.name} needs Python {python.version}; {found}",
            code="argument-invalid", hint=PAGE,
        )
    return packages


FLAGS = frozenset({
    "--ipc", "--no-privs", "--nv", "--nvccli", "--pid", "--rocm", "--underlay", "--unsquash",
    "--userns", "--uts", "--writable-tmpfs",
})
"""Flags of Apptainer that only make GPUs available or determine how a container is started."""

LEFT_OUT = frozenset({"bind-paths", "cwd", "devpts", "home", "hostfs", "tmp"})
"""Values of `--no-mount` that only exclude folders of the host."""

BINDS = ("--bind", "--mount")

DEVICES = "/dev/"

VARIABLES = re.compile(
    r"(FI|GLOO|MPICH|MV2|NCCL|OMPI_MCA|PMIX_MCA|PSM|PSM2|PSM3|RCCL|TP|UCC|UCX)_[A-Z0-9a-z_]+"
    r"|HOROVOD_(AUTOTUNE|BATCH_D2D_MEMCOPIES|CACHE_CAPACITY|CYCLE_TIME|FUSION_THRESHOLD|GLOO_IFACE"
    r"|GLOO_TIMEOUT_SECONDS|HIERARCHICAL_ALL(GATHER|REDUCE)|LOG_LEVEL|NUM_NCCL_STREAMS"
    r"|STALL_CHECK_(DISABLE|TIME_SECONDS)|THREAD_AFFINITY)"
    r"|GOMP_CPU_AFFINITY|KMP_AFFINITY|OMP_(DISPLAY_AFFINITY|PLACES|PROC_BIND)"
)
"""Environment variables of network libraries, and those that bind threads to cores.

Variables of launchers, such as `OMPI_COMM_WORLD_RANK` and `HOROVOD_RANK`, are not included, because
apps read them.
"""

READ_ONLY = frozenset({"NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"})
"""Variables of `VARIABLES` whose value may be a path, because they load no code, unlike plugins."""

_MOUNT = re.compile(r"type=bind,(?:source|src)=([^,]+),(?:destination|dst|target)=([^,]+)(?:,ro)?")

_PATH = re.compile(r"(^|[:;,= ])[.~]*/")


class SiteSettings(BaseModel):
    """The additions of the site file to a run.

    Attributes:
        flags: flags of the engine, as in the command.
        env: variables of the app, except those that the recipe sets: the recipe takes precedence.
        binds: path in the container -> folder of the host.
        devices: network devices that jobs on several nodes mount at the same path.
        fabric: fabric of the cluster, whose profile is part of `env` and `devices`; None: the site
            file names none, or the job has one node.
        libraries: names of the libraries of the nodes that the fabric's profile adds.
    """

    flags: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    binds: dict[str, str] = Field(default_factory=dict)
    devices: list[str] = Field(default_factory=list)
    fabric: FabricName | None = None
    libraries: list[str] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def changes(self) -> list[str]:
        """The additions that change the experiment, without their values, which may be private."""
        return [
            *(f"the flag {_named(flag)}" for flag in self.flags if not _is_neutral(flag)),
            *(f"the variable {name}" for name, value in self.env.items()
              if not is_network(name, value)),
            *(f"the bind to {place}" for place in self.binds if hides(place)),
        ]

    @property
    def words(self) -> list[str]:
        """All additions as text, for reports."""
        return [
            *([f"fabric {self.fabric}"] if self.fabric else []),
            *self.flags, *(f"{name}={value}" for name, value in self.env.items()),
            *(f"{source} at {place}" for place, source in self.binds.items()), *self.devices,
            *self.libraries,
        ]

    def private(self) -> dict[str, set[str] | set[int]]:
        """Return the indices of flags, and names of variables and binds, that evidence leaves out.

        These are flags and variables that may change the experiment or contain a path, and all
        binds.
        """
        return {
            "flags": {at for at, flag in enumerate(self.flags)
                      if not _is_neutral(flag) or "/" in flag},
            "env": {name for name, value in self.env.items()
                    if not is_network(name, value) or _PATH.search(value)},
            "binds": set(self.binds),
        }


def is_network(name: str, value: str) -> bool:
    """Return whether a variable is in `VARIABLES` and its value loads no code from a path."""
    if VARIABLES.fullmatch(name) is None:
        return False
    return name in READ_ONLY or _PATH.search(value) is None


def _is_neutral(flag: str) -> bool:
    name, equals, value = flag.partition("=")
    if name == "--no-mount":
        return bool(equals) and set(value.split(",")) <= LEFT_OUT
    if name in BINDS:
        return bool(equals) and all(map(_shows_a_place, _binds(name, value)))
    return flag in FLAGS


def _binds(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Yield the source and target of each bind; the target is "" if the bind cannot be parsed."""
    if name == "--mount":
        # Only this order of fields is parsed, without quotes.
        found = _MOUNT.fullmatch(value)
        yield (found[1], found[2]) if found else ("", "")
        return
    for one in value.split(","):
        source, _, rest = one.partition(":")
        target, _, options = rest.partition(":")
        yield (source, target or source) if options in ("", "ro", "rw") else ("", "")


def _shows_a_place(bind: tuple[str, str]) -> bool:
    """Return whether a bind hides no folder of the container, or shows a device at its own path."""
    source, target = bind
    if target.startswith(DEVICES) and ".." not in target:
        return source == target
    return bool(target) and not hides(target)


def _named(flag: str) -> str:
    name, _, value = flag.partition("=")
    if name not in BINDS:
        return name
    return f"{name} to {', '.join(target or '?' for _, target in _binds(name, value))}"
