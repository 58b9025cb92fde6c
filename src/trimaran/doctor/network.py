"""Compare the network of a node with the needs of the recipe, the image and the site file."""

from __future__ import annotations

import re

from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.folders import joined
from trimaran.doctor.network_devices import (
    DEVICE_FILES,
    ETHERNET,
    LIBRARIES,
    Port,
    interfaces,
    listed_matches,
    nccl_matches,
    ports,
    unknown_names,
)
from trimaran.doctor.situation import Situation

GLOO_NAMES = {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE"}
"""Environment variables that list network interfaces for Gloo or TensorPipe to open."""

DMABUF_KERNEL = (5, 12)
"""Oldest Linux version with DMA-BUF for InfiniBand, which can replace nvidia_peermem."""

FINDINGS: dict[str, Explained] = {
    "interface-names": Explained(
        "network", "fail",
        "A variable of the site file or of the recipe names network interfaces or devices that the"
        " node does not have: NCCL and Gloo end with an error, and MPI ends or uses TCP.",
        "name interfaces or devices of the compute nodes in the site file (clusters, env)",
        "for real: names that this machine does not have",
    ),
    "fast-network": Explained(
        "network", "warn",
        "A recipe for several nodes runs over TCP, because the node has no active InfiniBand, RoCE,"
        " Slingshot, EFA or Omni-Path.",
        "choose a partition whose nodes have a fast network, or expect the rates of Ethernet",
        "for real: this machine has Ethernet only",
    ),
    "port-down": Explained(
        "network", "warn",
        "A port of a fast network device is not active: a run uses fewer ports, or TCP.",
        "an administrator checks cable and subnet manager (ibstat, cxi_stat), or drains the node",
        "described node with InfiniBand",
    ),
    "network-libraries": Explained(
        "network", "warn",
        "The image lacks a library for the fast network of the node: a run of several nodes uses"
        " TCP.",
        "bind the libraries of the host (binds and env of the site file), or add them to the image"
        " (containers/EXTENDING.md)",
        "described nodes with InfiniBand, Slingshot and EFA",
    ),
    "network-device-files": Explained(
        "network", "warn",
        "The device files of the fast network are missing or refused: programs cannot reach the"
        " hardware and use TCP.",
        "an administrator must load ib_uverbs (or hfi1, cxi_user) and allow all users to read and"
        " write the files; a container needs /dev of the host",
        "described node with InfiniBand",
    ),
    "gpudirect": Explained(
        "network", "warn",
        "Neither the module nvidia_peermem nor DMA-BUF is there: data of GPUs take the way through"
        " the memory of the host.",
        "an administrator must run: modprobe nvidia_peermem, or install the open kernel modules",
        "described node with InfiniBand and NVIDIA",
    ),
    "fabric": Explained(
        "network", "fail",
        "The site file names a fabric that the node does not have: a run of several nodes would use"
        " TCP and cannot pass an expectation of throughput.",
        "correct the key fabric of the cluster in the site file, or choose other nodes",
        "for real: a fabric that this machine does not have",
    ),
}
"""Documentation of the findings in the group `network`, by ID."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the network of a node.

    The list is empty on the login node of a cluster, because the recipe runs on other nodes.
    """
    if situation.before_job:
        return []
    several = _shape(situation)[0] > 1
    known = ports(situation.facts)
    subjects = [_names(situation), _ports(known), _fabric(situation, known, several)]
    if several:
        subjects += [_fast(situation.facts, known), _libraries(situation, known),
                     _device_files(situation.facts, known), _gpudirect(situation, known)]
    return [finding for finding in subjects if finding is not None]


def _environment(situation: Situation) -> dict[str, str]:
    """Return the environment variables that the site file and the recipe set for the ranks.

    If both set a variable, the value of the recipe is used.
    """
    cluster = situation.cluster
    own = situation.recipe.recipe.env if situation.recipe is not None else {}
    return {**(cluster.env if cluster is not None else {}), **own}


def _names(situation: Situation) -> Finding | None:
    env, links = _environment(situation), list(interfaces(situation.facts))
    if not links:
        return None
    devices = list(dict.fromkeys(port.device for port in ports(situation.facts)))
    faults = [
        fault for name, value in env.items()
        if (fault := _fault(name, value, links, devices, _shape(situation))) is not None
    ]
    there = f"interfaces: {', '.join(links)}" + (f"; devices: {', '.join(devices)}" * bool(devices))
    return joined(FINDINGS, "interface-names",
                  [(level, f"{cause} ({there})") for level, cause in faults], there)


def _shape(situation: Situation) -> tuple[int, int, int]:
    """Return the numbers of nodes, of ranks, and of GPUs per rank that the recipe uses.

    Without a recipe, they are (1, 1, 0).
    """
    if situation.recipe is None:
        return 1, 1, 0
    resources = situation.recipe.recipe.resources
    return resources.nodes, resources.nodes * resources.tasks_per_node, resources.gpus_per_task


def _fault(
    name: str, value: str, links: list[str], devices: list[str], shape: tuple[int, int, int]
) -> tuple[Level, str] | None:
    """Return a fault if an environment variable names missing network interfaces, else None.

    The fault consists of a level and a cause. The level is "fail" only if the run certainly uses
    the library that reads the variable: NCCL between GPUs, Gloo between ranks, MPI and UCX between
    nodes.

    Args:
        name: name of the environment variable.
        value: value of the variable.
        links: names of the node's network interfaces.
        devices: names of the node's fast network devices.
        shape: numbers of nodes and ranks, and number of GPUs per rank.
    """
    nodes, ranks, gpus = shape
    if name == "NCCL_SOCKET_IFNAME" and not nccl_matches(value, links):
        return _worse(ranks > 1 and gpus > 0), f"{name}={value} matches no interface"
    if name == "NCCL_IB_HCA" and not nccl_matches(value, devices):
        return "warn", f"{name}={value} matches no device, and NCCL uses TCP"
    if "/" in value or "[" in value:  # a network such as 10.0.0.0/8, or a range of names
        return None
    if name in GLOO_NAMES and (missing := unknown_names(value, links)):
        return _worse(ranks > 1), f"{name}={value}: no {', '.join(missing)}"
    names = {"OMPI_MCA_btl_tcp_if_include": links, "UCX_NET_DEVICES": [*devices, *links]}.get(name)
    if names is not None and (missing := unknown_names(value, names)):
        none = not listed_matches(value, names)
        return _worse(none and nodes > 1), f"{name}={value}: no {', '.join(missing)}"
    return None


def _worse(fails: bool) -> Level:
    return "fail" if fails else "warn"


def _ports(known: list[Port]) -> Finding | None:
    if not known:
        return None
    listed = ", ".join(f"{port.name} ({port.fabric}): {port.state}" for port in known)
    # A port of an Ethernet card without a cable is normal.
    down = [port for port in known if not port.active and port.fabric != "roce"]
    return found(FINDINGS, "port-down", "warn" if down else "ok", listed)


def _fast(facts: NodeFacts, known: list[Port]) -> Finding | None:
    links = interfaces(facts)
    active = [port for port in known if port.active]
    if not known and not links:
        return None
    cause = ", ".join(f"{port.name} ({port.fabric}, {port.state})" for port in active)
    return found(FINDINGS, "fast-network", "ok" if active else "warn",
                 cause or f"only interfaces without RDMA: {', '.join(links)}")


def _fabrics(known: list[Port]) -> list[str]:
    """Return the names of the fabrics, such as `infiniband`, that have an active port."""
    return list(dict.fromkeys(port.fabric for port in known if port.active))


def _libraries(situation: Situation, known: list[Port]) -> Finding | None:
    image, fabrics = situation.image, _fabrics(known)
    if image is None or not fabrics:
        return None
    needs = {fabric: LIBRARIES[fabric] for fabric in fabrics}
    if _shape(situation)[2]:
        # NCCL and RCCL reach these fabrics by a plugin that uses libfabric.
        needs = {fabric: (*names, "nccl-ofi") if fabric in {"slingshot", "efa"} else names
                 for fabric, names in needs.items()}
    missing = [f"{name} for {fabric}" for fabric, names in needs.items() for name in names
               if image.values.get(name) == ""]
    if missing:
        return found(FINDINGS, "network-libraries", "warn",
                     f"the image {image.name} lacks {', '.join(missing)}")
    names = {name for names in needs.values() for name in names if image.values.get(name)}
    if not names:
        return None
    return found(FINDINGS, "network-libraries", "ok", f"the image has {', '.join(sorted(names))}")


def _device_files(facts: NodeFacts, known: list[Port]) -> Finding | None:
    files, faults = facts.under("device-file"), []
    for fabric in _fabrics(known):
        own = {name: access for name, access in files.items()
               if name.startswith(DEVICE_FILES[fabric])}
        if not own:
            faults.append(f"no {DEVICE_FILES[fabric]}* for {fabric}")
        faults += [f"{name} is not readable and writable" for name, access in own.items()
                   if access != "usable"]
    if not _fabrics(known):
        return None
    return found(FINDINGS, "network-device-files", "warn" if faults else "ok",
                 "; ".join(faults) or ", ".join(files))


def _gpudirect(situation: Situation, known: list[Port]) -> Finding | None:
    facts = situation.facts
    modules = facts.under("module")
    if not _shape(situation)[2] or "nvidia" not in modules:
        return None  # the driver of AMD's GPUs always supports GPUDirect
    if not {"infiniband", "roce"} & set(_fabrics(known)):
        return None
    if own := {"nvidia_peermem", "nv_peer_mem"} & modules.keys():
        return found(FINDINGS, "gpudirect", "ok", f"module {', '.join(sorted(own))} is loaded")
    release = facts.text("kernel-release") or ""
    version = tuple(map(int, re.findall(r"\d+", release)[:2]))
    open_module = "Open Kernel Module" in (facts.text("nvidia-module") or "")
    if open_module and version >= DMABUF_KERNEL:
        return found(FINDINGS, "gpudirect", "ok",
                     f"DMA-BUF: open kernel modules and Linux {release}")
    kind = "open" if open_module else "closed"
    return found(FINDINGS, "gpudirect", "warn",
                 f"nvidia_peermem is not loaded; {kind} kernel modules, Linux {release}")


def _fabric(situation: Situation, known: list[Port], several: bool) -> Finding | None:
    """Return the finding about the fabric that the site file names for the cluster.

    Return None if the site file names no fabric, or if the devices of the node are unknown.
    """
    cluster = situation.cluster
    if cluster is None or cluster.fabric is None:
        return None
    if not known and not interfaces(situation.facts):
        return None  # the devices are unknown, as in a container without /sys
    there = _fabrics(known) or [ETHERNET]
    if cluster.fabric in {*there, ETHERNET}:
        return found(FINDINGS, "fabric", "ok", f"{cluster.fabric}, as the site file names it")
    refused = several and cluster.fabric_missing == "refuse"
    return found(FINDINGS, "fabric", _worse(refused),
                 f"the site file names {cluster.fabric}, the node has {', '.join(there)}")
