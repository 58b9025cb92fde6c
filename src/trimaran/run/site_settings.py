"""What a site file adds to the command of a run, and which of it changes the experiment.

A site file is for the network, the devices and the folders of one machine. What it adds is written
into `run.json`. Only what the lists here name is neutral: it decides how bytes travel and where
threads run. Anything else could change what the app computes, as `--set` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel, Field, computed_field

from trimaran.site_file import hides

FLAGS = frozenset({
    "--ipc", "--no-privs", "--nv", "--nvccli", "--pid", "--rocm", "--underlay", "--unsquash",
    "--userns", "--uts", "--writable-tmpfs",
})
"""Flags of Apptainer that show a GPU, or say how a container is started."""

LEFT_OUT = frozenset({"bind-paths", "cwd", "devpts", "home", "hostfs", "tmp"})
"""What `--no-mount` may leave out: folders of the host."""

BINDS = ("--bind", "--mount")

DEVICES = "/dev/"

VARIABLES = re.compile(
    r"(FI|GLOO|MPICH|MV2|NCCL|OMPI_MCA|PMIX_MCA|PSM|PSM2|PSM3|RCCL|TP|UCC|UCX)_[A-Z0-9a-z_]+"
    r"|HOROVOD_(AUTOTUNE|BATCH_D2D_MEMCOPIES|CACHE_CAPACITY|CYCLE_TIME|FUSION_THRESHOLD|GLOO_IFACE"
    r"|GLOO_TIMEOUT_SECONDS|HIERARCHICAL_ALL(GATHER|REDUCE)|LOG_LEVEL|NUM_NCCL_STREAMS"
    r"|STALL_CHECK_(DISABLE|TIME_SECONDS)|THREAD_AFFINITY)"
    r"|GOMP_CPU_AFFINITY|KMP_AFFINITY|OMP_(DISPLAY_AFFINITY|PLACES|PROC_BIND)"
)
"""Variables of network libraries, and those that place threads on cores.

The launchers' own, such as `OMPI_COMM_WORLD_RANK` and `HOROVOD_RANK`, are not among them: apps
read them.
"""

READ_ONLY = frozenset({"NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"})
"""Variables whose value may be a path: it names no code. A plugin's path does."""

_MOUNT = re.compile(r"type=bind,(?:source|src)=([^,]+),(?:destination|dst|target)=([^,]+)(?:,ro)?")

_PATH = re.compile(r"(^|[:;,= ])[.~]*/")


class SiteSettings(BaseModel):
    """What the site file added to a run: to the engine's command, and to the app's variables.

    Attributes:
        flags: of the engine, as they are in the command.
        env: variables that reach the app; not those that the recipe sets, too, for those win.
        binds: folders of the host, by where the container sees them.
        devices: of the network, which jobs of several nodes show as themselves.
    """

    flags: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    binds: dict[str, str] = Field(default_factory=dict)
    devices: list[str] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def changes(self) -> list[str]:
        """What of it changes the experiment: by name, for values may be nobody's business."""
        return [
            *(f"the flag {_named(flag)}" for flag in self.flags if not _is_neutral(flag)),
            *(f"the variable {name}" for name, value in self.env.items()
              if not is_network(name, value)),
            *(f"the bind to {place}" for place in self.binds if hides(place)),
        ]

    @property
    def words(self) -> list[str]:
        """All of it, for people."""
        return [
            *self.flags, *(f"{name}={value}" for name, value in self.env.items()),
            *(f"{source} at {place}" for place, source in self.binds.items()), *self.devices,
        ]

    def private(self) -> dict[str, set[str] | set[int]]:
        """Return what published evidence leaves out: folders, and values that nobody expects."""
        return {
            "flags": {at for at, flag in enumerate(self.flags)
                      if not _is_neutral(flag) or "/" in flag},
            "env": {name for name, value in self.env.items()
                    if not is_network(name, value) or _PATH.search(value)},
            "binds": set(self.binds),
        }


def is_network(name: str, value: str) -> bool:
    """Return whether a variable is one of `VARIABLES`, and loads no code from a path."""
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
    """Yield source and target of each bind; a target of "" where the word cannot be understood."""
    if name == "--mount":
        # In this order only: nothing is guessed of other fields, and of quoted ones.
        found = _MOUNT.fullmatch(value)
        yield (found[1], found[2]) if found else ("", "")
        return
    for one in value.split(","):
        source, _, rest = one.partition(":")
        target, _, options = rest.partition(":")
        yield (source, target or source) if options in ("", "ro", "rw") else ("", "")


def _shows_a_place(bind: tuple[str, str]) -> bool:
    """Return whether a bind hides nothing of the container, or shows a device as itself."""
    source, target = bind
    if target.startswith(DEVICES) and ".." not in target:
        return source == target
    return bool(target) and not hides(target)


def _named(flag: str) -> str:
    name, _, value = flag.partition("=")
    if name not in BINDS:
        return name
    return f"{name} to {', '.join(target or '?' for _, target in _binds(name, value))}"
