"""Collect the additions of the site file to a run, and find those that change the experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel, Field, computed_field

from trimaran.site_file import FabricName, hides

FLAGS = frozenset({
    "--ipc", "--no-privs", "--nv", "--nvccli", "--pid", "--rocm", "--underlay", "--unsquash",
    "--userns", "--uts", "--writable-tmpfs",
})
"""Flags of Apptainer that do not change the experiment.

They only make GPUs available, or determine how the container is started.
"""

LEFT_OUT = frozenset({"bind-paths", "cwd", "devpts", "home", "hostfs", "tmp"})
"""Values of `--no-mount` that do not change the experiment: they only exclude host folders."""

BINDS = ("--bind", "--mount")

DEVICES = "/dev/"

VARIABLES = re.compile(
    r"(FI|GLOO|MPICH|MV2|NCCL|OMPI_MCA|PMIX_MCA|PSM|PSM2|PSM3|RCCL|TP|UCC|UCX)_[A-Z0-9a-z_]+"
    r"|HOROVOD_(AUTOTUNE|BATCH_D2D_MEMCOPIES|CACHE_CAPACITY|CYCLE_TIME|FUSION_THRESHOLD|GLOO_IFACE"
    r"|GLOO_TIMEOUT_SECONDS|HIERARCHICAL_ALL(GATHER|REDUCE)|LOG_LEVEL|NUM_NCCL_STREAMS"
    r"|STALL_CHECK_(DISABLE|TIME_SECONDS)|THREAD_AFFINITY)"
    r"|GOMP_CPU_AFFINITY|KMP_AFFINITY|OMP_(DISPLAY_AFFINITY|PLACES|PROC_BIND)"
)
"""Matches names of environment variables that do not change the experiment.

These are variables of network libraries, and variables that bind threads to cores. Variables of
launchers, such as `OMPI_COMM_WORLD_RANK` and `HOROVOD_RANK`, do not match, because apps read them.
"""

READ_ONLY = frozenset({"NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"})
"""Variables of NCCL with paths of data files; NCCL loads no code from these paths.

Other variables with a path count as a change of the experiment.
"""

_MOUNT = re.compile(r"type=bind,(?:source|src)=([^,]+),(?:destination|dst|target)=([^,]+)(?:,ro)?")

_PATH = re.compile(r"(^|[:;,= ])[.~]*/")

_ADDRESS = re.compile(r"([0-9]{1,3}\.){3}[0-9]{1,3}|([0-9A-Fa-f]{0,4}:){2}")
"""Matches a part of any IP address (version 4 or 6), hardware address or PCI address.

Environment variables whose values contain such a part are left out of published evidence.
"""

_NAMED_PRIVATE = re.compile(
    r"NCCL_(COMM_ID|HOSTID)|.*(_KEYS?|TOKEN|SECRET|PASSW|CREDENTIAL|_UUID|_URI"
    r"|precondition_transports|hostfile|nodename).*", re.IGNORECASE,
)
"""Matches the names of variables whose values are keys, or addresses or names of hosts."""


class SiteSettings(BaseModel):
    """The additions of the site file to a run.

    Attributes:
        flags: flags of the engine, as in the command.
        env: environment variables of the app; variables that the recipe also sets are left out.
        binds: path in the container -> folder of the host.
        devices: network devices that jobs on several nodes mount at the same path.
        fabric: fabric of the cluster; the variables and devices of its profile are in `env` and
            `devices`. None: the site file names no fabric, or the job has one node.
        libraries: names of the libraries of the nodes that the profile binds into the container.
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
        """The site file's additions that change the experiment: names without values.

        The values are left out because they can be private.
        """
        return [
            *(f"the flag {_named(flag)}" for flag in self.flags if not _is_neutral(flag)),
            *(f"the variable {name}" for name, value in self.env.items()
              if not is_network(name, value)),
            *(f"the bind to {place}" for place in self.binds if hides(place)),
        ]

    @property
    def words(self) -> list[str]:
        """Texts for reports: one for each setting that the site file adds to the run."""
        return [
            *([f"fabric {self.fabric}"] if self.fabric else []),
            *self.flags, *(f"{name}={value}" for name, value in self.env.items()),
            *(f"{source} at {place}" for place, source in self.binds.items()), *self.devices,
            *self.libraries,
        ]

    def private(self) -> dict[str, set[str] | set[int]]:
        """Return the additions that published evidence leaves out, because they may be private.

        These are flags and variables that may change the experiment or contain a path, variables
        with an address or a key, and all binds.

        Returns:
            Name of a field -> the additions to leave out: indices in `flags`, names of variables
            in `env`, paths in the container in `binds`.
        """
        return {
            "flags": {at for at, flag in enumerate(self.flags)
                      if not _is_neutral(flag) or "/" in flag},
            "env": {name for name, value in self.env.items()
                    if not is_network(name, value) or _PATH.search(value)
                    or _ADDRESS.search(value) or _NAMED_PRIVATE.fullmatch(name)},
            "binds": set(self.binds),
        }


def is_network(name: str, value: str) -> bool:
    """Return whether an environment variable is known not to change the experiment.

    The name must match `VARIABLES`: settings of network libraries, and of the binding of threads to
    cores. The value must not contain a path, from which a library could load code, unless the name
    is in `READ_ONLY`.
    """
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
    """Yield source and target of each bind in an option; ("", "") for an unsupported syntax."""
    if name == "--mount":
        # Fields in another order, or with quotes, are not parsed.
        found = _MOUNT.fullmatch(value)
        yield (found[1], found[2]) if found else ("", "")
        return
    for one in value.split(","):
        source, _, rest = one.partition(":")
        target, _, options = rest.partition(":")
        yield (source, target or source) if options in ("", "ro", "rw") else ("", "")


def _shows_a_place(bind: tuple[str, str]) -> bool:
    """Return whether a bind (source, target) hides none of the image's folders.

    For a target below /dev, return instead whether source and target are the same path.
    """
    source, target = bind
    if target.startswith(DEVICES) and ".." not in target:
        return source == target
    return bool(target) and not hides(target)


def _named(flag: str) -> str:
    name, _, value = flag.partition("=")
    if name not in BINDS:
        return name
    return f"{name} to {', '.join(target or '?' for _, target in _binds(name, value))}"
