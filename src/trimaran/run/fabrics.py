"""Profiles of fabrics: settings by which jobs on several nodes use the fast network of a cluster.

A profile consists of environment variables, libraries and devices. Variables and libraries state
their source. The variables are only defaults: `env` of the cluster in the site file overrides
them, and `env` of the recipe overrides both. The table in the documentation is generated from
`PROFILES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trimaran.site_file import FabricName

Accelerator = Literal["nvidia", "amd", "cpu"]
"""The vendor of the GPUs that an image uses, or "cpu" for an image that uses no GPUs."""

ACCELERATORS: tuple[Accelerator, ...] = get_args(Accelerator)
WITH_MPI: tuple[Accelerator, ...] = ("nvidia", "cpu")
"""The accelerators whose framework images contain Open MPI with UCX and libfabric."""

GPUS: tuple[Accelerator, ...] = ("nvidia", "amd")
CPU: tuple[Accelerator, ...] = ("cpu",)

LOGS = "fabric"
"""Folder with the logs of the network libraries, relative to the run directory.

The variables in `LOGGING` contain this relative path, because a variable with an absolute path
would count as a change of the experiment. The working directory of the app is the run directory.
"""

NCCL_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
UCX_LOGGING = "https://github.com/openucx/ucx/wiki/Logging"
UCX_INFO = "ucx_info -f (UCX 1.13.1)"
OMPI_UCX = "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ib-and-roce.html"
OMPI_OFI = "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ofi.html"
OMPI_OPA = "https://www.open-mpi.org/faq/?category=opa"
OMPI_MCA = "ompi_info --all (Open MPI 4.1.4)"
LIBFABRIC = "https://ofiwg.github.io/libfabric/main/man/fabric.7.html"
HPE = "https://github.com/HewlettPackard/shs-ccl-docs"
CSCS = "https://docs.cscs.ch/software/communication/"
LUMI = "https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/p/PyTorch/"
FI_CXI = "https://ofiwg.github.io/libfabric/main/man/fi_cxi.7.html"
FI_EFA = "https://ofiwg.github.io/libfabric/main/man/fi_efa.7.html"
FI_PSM2 = "https://ofiwg.github.io/libfabric/v1.17.0/man/fi_psm2.7.html"
OFI_PLUGIN = "https://github.com/aws/aws-ofi-nccl"
AWS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"


@dataclass(frozen=True)
class Setting:
    """An environment variable of a profile.

    Attributes:
        name: name of the variable.
        value: value of the variable, without `;`.
        source: documentation of the variable or of the recommended value.
        on: accelerators for which the variable is set.
        forces: whether the variable makes the library fail instead of using TCP. Such a variable is
            not set if the site file allows that the fabric is missing.
    """

    name: str
    value: str
    source: str
    on: tuple[Accelerator, ...] = ACCELERATORS
    forces: bool = False


@dataclass(frozen=True)
class Library:
    """A shared library with which a job uses a fabric, the fast network of a cluster.

    Attributes:
        name: file name of the library, by which programs load it.
        source: documentation of the purpose of the library.
        places: patterns of its paths on a node, the best first; the library is bound into the
            container. An empty tuple means that the image must contain the library.
        on: accelerators for which the library is needed.
        needed: whether a job is refused if the library is missing.
    """

    name: str
    source: str
    places: tuple[str, ...] = ()
    on: tuple[Accelerator, ...] = ACCELERATORS
    needed: bool = True


@dataclass(frozen=True)
class Profile:
    """The settings, libraries and devices that a job needs to use one kind of fabric.

    Attributes:
        title: name of the fabric.
        fast: whether the fabric has a faster protocol than TCP.
        settings: environment variables.
        libraries: shared libraries, from the node or the image.
        devices: patterns of the devices that the libraries open; a node needs at least one.
    """

    title: str
    fast: bool = True
    settings: tuple[Setting, ...] = ()
    libraries: tuple[Library, ...] = ()
    devices: tuple[str, ...] = ()

    def environment(self, accelerator: Accelerator, *, forced: bool = True) -> dict[str, str]:
        """Return the variables of the profile and of `LOGGING`.

        Args:
            accelerator: the accelerator of the image.
            forced: whether to set also the variables that make a library fail instead of using
                TCP.
        """
        return {
            one.name: one.value for one in (*LOGGING, *self.settings)
            if accelerator in one.on and (forced or not one.forces)
        }

    def bound(self, accelerator: Accelerator) -> list[Library]:
        """Return the libraries of the node that are bound into the container."""
        return [one for one in self.libraries if one.places and accelerator in one.on]

    def contained(self, accelerator: Accelerator) -> list[str]:
        """Return the names of the libraries that the image must contain."""
        return [one.name for one in self.libraries if not one.places and accelerator in one.on]


LOGGING = (
    Setting("NCCL_DEBUG", "INFO", NCCL_DOCS, GPUS),
    Setting("NCCL_DEBUG_SUBSYS", "INIT,NET", NCCL_DOCS, GPUS),
    Setting("NCCL_DEBUG_FILE", f"{LOGS}/nccl.%h.%p", NCCL_DOCS, GPUS),
    Setting("UCX_LOG_LEVEL", "info", UCX_LOGGING, WITH_MPI),
    Setting("UCX_LOG_FILE", f"{LOGS}/ucx.%h.%p", UCX_LOGGING, WITH_MPI),
    # With lower levels, Open MPI does not print the components that it selects for sending.
    Setting("OMPI_MCA_pml_base_verbose", "10", OMPI_MCA, WITH_MPI),
    Setting("OMPI_MCA_mtl_base_verbose", "10", OMPI_MCA, WITH_MPI),
    Setting("OMPI_MCA_btl_base_verbose", "20", OMPI_MCA, WITH_MPI),
)
"""Variables that make the libraries log the networks that they use; the same for all fabrics."""

_VERBS = (
    # NCCL loads the library at run time, and Open MPI's UCX is linked with it.
    Library("libibverbs.so.1", NCCL_DOCS),
)

_INFINIBAND = (
    Setting("NCCL_NET", "IB", NCCL_DOCS, GPUS, forces=True),
    Setting("OMPI_MCA_pml", "ucx", OMPI_UCX, CPU, forces=True),
    Setting("UCX_TLS", "ib,sm,self", UCX_INFO, CPU, forces=True),
)

_BY_LIBFABRIC = (
    Setting("OMPI_MCA_pml", "cm", OMPI_OFI, CPU, forces=True),
    Setting("OMPI_MCA_mtl", "ofi", OMPI_OFI, CPU, forces=True),
)

_FOLDERS = ("/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/usr/local/lib64")


def _in(name: str, *folders: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in folders)


def _plugin(*folders: str) -> tuple[Library, ...]:
    """Return the libfabric plugins of NCCL (NVIDIA) and RCCL (AMD), which differ in their names."""
    return (
        Library("libnccl-net.so", OFI_PLUGIN, _in("libnccl-net.so", *folders), ("nvidia",)),
        Library("librccl-net.so", OFI_PLUGIN, _in("librccl-net.so", *folders), ("amd",)),
    )


PROFILES: dict[FabricName, Profile] = {
    "infiniband": Profile(
        "InfiniBand", settings=_INFINIBAND, libraries=_VERBS, devices=("/dev/infiniband/uverbs*",),
    ),
    "roce": Profile(
        "RoCE (RDMA over Ethernet)", settings=_INFINIBAND, libraries=_VERBS,
        devices=("/dev/infiniband/uverbs*",),
    ),
    "slingshot": Profile(
        "HPE Slingshot 11",
        settings=(
            # This is the name of the network in the plugin. If a version of the plugin has another
            # name, the site file must set the variable (`env`).
            Setting("NCCL_NET", "AWS Libfabric", f"{HPE} {CSCS}nccl/", GPUS, forces=True),
            *_BY_LIBFABRIC,
            Setting("FI_PROVIDER", "cxi", LIBFABRIC, forces=True),
            Setting("NCCL_SOCKET_IFNAME", "hsn", f"{HPE} {LUMI}", GPUS),
            Setting("NCCL_NET_GDR_LEVEL", "PHB", f"{HPE} {CSCS}nccl/ {LUMI}", GPUS),
            Setting("NCCL_CROSS_NIC", "1", f"{HPE} {CSCS}nccl/", ("nvidia",)),
            Setting("FI_MR_CACHE_MONITOR", "userfaultfd", f"{HPE} {CSCS}nccl/", GPUS),
            Setting("FI_CXI_DISABLE_HOST_REGISTER", "1", f"{HPE} {CSCS}nccl/", ("nvidia",)),
            Setting("FI_CXI_DEFAULT_CQ_SIZE", "131072", f"{HPE} {CSCS}nccl/", GPUS),
            Setting("FI_CXI_RX_MATCH_MODE", "hybrid", f"{HPE} {FI_CXI}"),
        ),
        libraries=(
            Library("libcxi.so.1", LUMI, _in("libcxi.so.1", *_FOLDERS)),
            Library("libfabric.so.1", f"{CSCS}libfabric/", _in(
                "libfabric.so.1", "/opt/cray/libfabric/*/lib64", *_FOLDERS)),
            *_plugin("/opt/aws-ofi-nccl/lib", "/opt/aws-ofi-rccl/lib", *_FOLDERS),
            # Only some versions of the host's libfabric are linked with these libraries.
            Library("libjson-c.so.3", LUMI, _in("libjson-c.so.3", *_FOLDERS), needed=False),
            Library("libjson-c.so.5", LUMI, _in("libjson-c.so.5", *_FOLDERS), needed=False),
        ),
        devices=("/dev/cxi*",),
    ),
    "efa": Profile(
        "AWS Elastic Fabric Adapter",
        settings=(
            *_BY_LIBFABRIC,
            Setting("FI_PROVIDER", "efa", AWS, forces=True),
            Setting("FI_EFA_USE_DEVICE_RDMA", "1", FI_EFA, GPUS),
        ),
        libraries=(
            *_VERBS,
            Library("libfabric.so.1", AWS, _in(
                "libfabric.so.1", "/opt/amazon/efa/lib64", "/opt/amazon/efa/lib",
                "/opt/amazon/efa/lib/*-linux-gnu")),
            Library("libefa.so.1", FI_EFA, _in("libefa.so.1", *_FOLDERS)),
            *_plugin("/opt/amazon/ofi-nccl/lib/*-linux-gnu", "/opt/amazon/ofi-nccl/lib64",
                     "/opt/amazon/ofi-nccl/lib", "/opt/amazon/aws-ofi-nccl/lib",
                     "/opt/aws-ofi-nccl/lib"),
        ),
        devices=("/dev/infiniband/uverbs*",),
    ),
    "omnipath": Profile(
        "Omni-Path",
        settings=(
            # NCCL uses the verbs interface of the Omni-Path card, like InfiniBand.
            Setting("NCCL_NET", "IB", NCCL_DOCS, GPUS, forces=True),
            Setting("OMPI_MCA_pml", "cm", OMPI_OPA, CPU, forces=True),
            Setting("OMPI_MCA_mtl", "psm2", OMPI_OPA, CPU, forces=True),
            Setting("FI_PROVIDER", "psm2", FI_PSM2, CPU, forces=True),
        ),
        libraries=(
            Library("libpsm2.so.2", OMPI_OPA, on=CPU),
            Library("libibverbs.so.1", NCCL_DOCS, on=GPUS),
        ),
        devices=("/dev/hfi1*",),
    ),
    "ethernet": Profile("Ethernet (TCP)", fast=False),
}
"""Value of `fabric` in the site file -> the settings, libraries and devices for this network."""
