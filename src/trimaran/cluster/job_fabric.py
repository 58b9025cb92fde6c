"""Turn the profile of a cluster's fabric into the variables of a job's script.

A fabric is the fast network between nodes. Its profile lists the environment variables, libraries
and devices that a job needs to use it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from trimaran.engines import commands
from trimaran.launch.specification import quote
from trimaran.run.fabrics import PROFILES, Accelerator, Library
from trimaran.site_file import Cluster, FabricName


@dataclass(frozen=True)
class JobFabric:
    """The settings that the profile of a fabric adds to a job; they are empty without a profile.

    Attributes:
        name: name of the fabric.
        missing: reaction of the job if a node lacks a part of the fabric: refuse or warn.
        env: environment variables of the ranks.
        devices: patterns of device files; a node needs a file that matches one of them.
        libraries: libraries of the node to bind into the container.
        contained: names of libraries that the image must contain.
    """

    name: FabricName | None = None
    missing: str = "refuse"
    env: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    libraries: tuple[Library, ...] = ()
    contained: tuple[str, ...] = ()

    def assignments(self, *, overridden: Collection[str]) -> list[str]:
        """Return the lines that assign the fabric's variables in the job script.

        Return [] without a fabric.

        In the lists of environment variables and libraries, `;` separates the items:
        `NAME=VALUE` for a variable, `NAME PATH...` for a library, or `-NAME PATH...` if the
        library may be missing. In the other lists, a blank separates the items.

        Args:
            overridden: environment variables that the site file or the recipe sets, which are
                left out.
        """
        if self.name is None:
            return []
        settings = [f"{name}={value}" for name, value in self.env.items()
                    if name not in overridden]
        libraries = [
            " ".join((one.name if one.needed else f"-{one.name}", *one.places))
            for one in self.libraries
        ]
        lines = [
            {"fabric": self.name, "fabric_missing": self.missing},
            {"fabric_settings": ";".join(settings)},
            {"fabric_devices": " ".join(self.devices),
             "fabric_contained": " ".join(self.contained)},
            {"fabric_libraries": ";".join(libraries)},
        ]
        return [
            " ".join(f"{name}={quote(value)}" for name, value in line.items())
            for line in lines if any(line.values())
        ]


def accelerator(image: str) -> Accelerator:
    """Return the vendor of the GPUs that the image called `image` uses, or `cpu` for no GPUs."""
    return commands.gpu_vendor(image) or "cpu"


def of(cluster: Cluster, image: str, *, nodes: int) -> JobFabric:
    """Return the settings that the fabric of `cluster` adds to a job of the image called `image`.

    A job with one node gets no settings: NCCL would not start if the settings demanded a network
    that the container does not see.
    """
    if cluster.fabric is None or nodes == 1:
        return JobFabric()
    profile, on = PROFILES[cluster.fabric], accelerator(image)
    refuses = cluster.fabric_missing == "refuse"
    return JobFabric(
        cluster.fabric, cluster.fabric_missing, profile.environment(on, forced=refuses),
        profile.devices,
        tuple(_also_in(one, cluster) for one in profile.bound(on)),
        tuple(profile.contained(on)),
    )


def _also_in(library: Library, cluster: Cluster) -> Library:
    """Return a copy of `library` with more search paths: first the cluster's `fabric_folders`."""
    own = tuple(f"{folder}/{library.name}" for folder in cluster.fabric_folders)
    return replace(library, places=(*own, *library.places))
