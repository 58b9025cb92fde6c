"""Build the launch specification of a run from its recipe, data, image, machine and additions.

Additions are overlays and packages of the user, and binds, flags and variables of the site file.
Only this module builds the command of a run. The verdict on a finished run builds the specification
again from the values in `run.json`, and compares it with the recorded specification.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, computed_field

from trimaran.engines import Engine, selection
from trimaran.errors import UsageError, unreadable
from trimaran.files import sha256
from trimaran.launch.specification import (
    Command,
    ImageReference,
    LaunchSpec,
    Mount,
    Node,
    Text,
    join,
)
from trimaran.recipes.cards import Argument
from trimaran.recipes.recipe import Recipe
from trimaran.site_file import hides

if TYPE_CHECKING:
    from trimaran.images.definition import Image

INSIDE = "/data"
"""Path in the container of the single data set, or of a folder with one subfolder for each."""

OUT_INSIDE = "/out"
"""Path of the run directory in the container."""


@dataclass(frozen=True)
class Places:
    """The files that a run reads and writes.

    Attributes:
        data: mount of each packed data set, by name, in the order of the recipe.
        out: path of the run directory on the host, the only folder that the run writes.
        initial: mount of the checkpoint that the run starts from, if there is one.
    """

    data: Mapping[str, Mount]
    out: Text
    initial: Sequence[Mount] = ()


def specification(
    recipe: Recipe, changes: Mapping[str, Argument], image: ImageReference, node: Node,
    places: Places, *, module: str | None, extension: Extension, site: SiteSettings,
) -> LaunchSpec:
    """Return the launch specification of a run.

    Args:
        recipe: the recipe to run.
        changes: arguments that replace those of the recipe.
        image: the image to run.
        node: the values that depend on the machine.
        places: the files to read and write.
        module: the Python module of the app; None: the image has no app.
        extension: additions of the user to the image.
        site: additions of the site file.
    """
    out = Mount(places.out, OUT_INSIDE, writable=True)
    container = selection.is_container(image.engine)
    # Binds of the site file are for containers; on the host the paths stay the same.
    binds = [Mount(source, target) for target, source in site.binds.items()] if container else []

    def seen(mount: Mount) -> Text:
        return mount.target if container else mount.source

    data = data_argument(places.data, container=container)
    words = app_arguments(recipe, changes, data=data, out=_path(seen(out)))
    words += [_path(join("--initial=", seen(mount))) for mount in places.initial]
    return LaunchSpec(
        image=image, node=node,
        mounts=(*places.data.values(), out, *places.initial, *binds, *extension.mounts()),
        environment=extension.environment(recipe.env), workdir=_path(seen(out)),
        module=module, launcher=tuple(launcher(recipe)), arguments=tuple(words),
        overlay=None if extension.overlay is None else str(extension.overlay),
        site_options=tuple(site.flags), site_environment=site.env,
    )


def data_argument(data: Mapping[str, Mount], *, container: bool) -> str | None:
    """Return the value of the app's option `--data`, or None if the app reads no data."""
    if not data:
        return None
    return INSIDE if container else str(next(iter(data.values())).source)


def app_arguments(
    recipe: Recipe, changes: Mapping[str, Argument], *, data: str | None, out: str
) -> list[str]:
    """Return the arguments of the app: verb, folders, and the recipe's arguments in their order.

    The value true becomes `--key`, false becomes `--no-key`, and other values `--key=value`. Each
    argument is one word, so that a value cannot be parsed as an option.

    Args:
        recipe: the recipe.
        changes: options that replace those of the recipe, or are added to them.
        data: folder of the data, in the container; None: the app reads no data.
        out: output folder, in the container.
    """
    words = [recipe.verb, *([] if data is None else [f"--data={data}"]), f"--out={out}"]
    for key, value in {**recipe.args, **changes}.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            words.append(f"--{key}={value}")
    return words


def launcher(recipe: Recipe) -> list[str]:
    """Return the words that start the ranks inside a container, including the interpreter.

    The torchrun, Open MPI or Horovod of the image starts all ranks of the node in one container. If
    the batch system or the host's mpirun starts one container for each rank, the list is empty, and
    the entry point of the image runs.
    """
    wanted = recipe.resources
    tasks = str(wanted.tasks_per_node)
    if recipe.launcher == "torchrun" and wanted.nodes > 1:
        # The job sets PET_RDZV_ENDPOINT, the rendezvous address, when its nodes are known.
        nodes, restarts = str(wanted.nodes), []
        if wanted.min_nodes:
            nodes = f"{wanted.min_nodes}:{nodes}"
            restarts = ["--max-restarts", str(wanted.nodes - wanted.min_nodes)]
        return ["python", "-m", "torch.distributed.run", "--nnodes", nodes,
                "--nproc-per-node", tasks, "--rdzv-backend", "c10d", *restarts]
    if recipe.launcher == "torchrun":
        return ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", tasks]
    if recipe.launcher == "mpirun" and wanted.nodes == 1:
        # By default, Open MPI binds each rank to one core; the recipe's env places threads.
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", tasks, "python"]
    if recipe.launcher == "horovodrun":
        # horovodrun keeps its cache in the home folder, which a container does not have.
        return ["horovodrun", "--gloo", "--disable-cache", "--network-interfaces", "lo",
                "-np", tasks, "python"]
    return []


def _path(text: Text) -> str:
    """Return `text`, a path for the app, or raise UsageError if it contains shell variables."""
    if not isinstance(text, str):
        raise UsageError("a script can only contain a run in a container",
                         code="engine-unsuitable", hint="use a container engine")
    return text


def command(spec: LaunchSpec) -> Command:
    """Return the exact command of a specification, for the machine in the specification.

    Raises:
        UsageError: the image has no app to launch.
        ValueError: a part of the command is a shell variable.
    """
    return selection.row(spec.image.engine).render(spec).command()


def differences(spec: LaunchSpec, wanted: LaunchSpec) -> list[str]:
    """Return a line for each field in which a recorded specification differs from `wanted`.

    The fields of the batch system are not compared, because only the site file determines them.
    """
    same = replace(spec, task_starter=wanted.task_starter, shared_node=wanted.shared_node)
    return [
        f"{name} is {_first(getattr(same, name), getattr(wanted, name))}"
        for name in LaunchSpec.__dataclass_fields__
        if getattr(same, name) != getattr(wanted, name)
    ]


def _first(found: object, wanted: object) -> str:
    """Return the first difference as text: two elements of the values, or else both values."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        found, wanted = list(found.items()), list(wanted.items())
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        for one, other in zip([*found, None], [*wanted, None], strict=False):
            if one != other:
                return f"{one!r}, not {other!r}"
    return f"{found!r}, not {wanted!r}"


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
    """

    flags: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    binds: dict[str, str] = Field(default_factory=dict)
    devices: list[str] = Field(default_factory=list)

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
            *self.flags, *(f"{name}={value}" for name, value in self.env.items()),
            *(f"{source} at {place}" for place, source in self.binds.items()), *self.devices,
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
