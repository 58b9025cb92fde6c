"""Read from the logs of a job which networks carried the bytes between its nodes.

At the end of each job of a run, the job script searches the logs of the network libraries for texts
that name a network, and counts the lines with each text (`carriers` in `cluster/functions.sh`). It
writes the counts into `fabric.log`, in lines of the form `NUMBER TEXT`. This module reads the texts
of NCCL 2.4 to 2.29, RCCL, aws-ofi-nccl 1.3 to 1.18, UCX 1.13 to 1.18, and Open MPI 4 and 5. The
tests use lines that UCX 1.13 and Open MPI 4.1 printed, and lines that were written by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from trimaran.errors import UsageError
from trimaran.files import read_plain
from trimaran.run.fabrics import PROFILES
from trimaran.site_file import FabricName

LOG = "fabric.log"
"""File in the run directory with lines `NUMBER TEXT`.

TEXT names a network or the backend, and NUMBER counts the lines of the job's log with TEXT.
"""

LIMIT = 4 * 1024 * 1024
"""Maximum accepted size of `fabric.log` in bytes; a job adds at most 2,000 short lines."""

Kind = Literal["fast", "tcp", "unknown"]
"""How a network transfers data: "fast" bypasses the kernel, and "tcp" uses sockets."""


class Carrier(BaseModel):
    """One network that a library used between nodes.

    Attributes:
        library: the library, such as NCCL.
        transport: the name that the library prints for the network, such as `rc_mlx5`; with
            libfabric, its provider.
        interface: the network devices, if the log names them.
        kind: "fast", "tcp" or "unknown" (see `Kind`).
        lines: number of lines in the logs that show this network.
    """

    library: str
    transport: str
    interface: str | None = None
    kind: Kind
    lines: int = Field(ge=0)


class FabricRecord(BaseModel):
    """The fabric of a cluster, and the networks that a run on several of its nodes used.

    Attributes:
        wanted: fabric that the site file names.
        backend: the library that averages gradients, as recorded by the app; None: not recorded.
        carried: networks that the libraries used; empty: the logs show no network.
    """

    wanted: FabricName
    backend: Literal["gloo", "mpi", "nccl"] | None = None
    carried: list[Carrier] = []

    @property
    def decisive(self) -> list[Carrier]:
        """The networks that carried the gradients: those of the libraries of the backend.

        If the backend is not recorded, these are all networks in the logs.
        """
        if self.backend is None:
            return self.carried
        return [one for one in self.carried if one.library in _LIBRARIES[self.backend]]

    @property
    def slow(self) -> list[Carrier]:
        """The networks that carried the gradients by TCP, though the fabric has a faster protocol.

        Empty if the fabric has no faster protocol than TCP.
        """
        if not PROFILES[self.wanted].fast:
            return []
        return [one for one in self.decisive if one.kind == "tcp"]

    @property
    def known(self) -> bool:
        """Whether it is known if gradients were sent over a fast network or over TCP.

        It is known if at least one network in `decisive`, the networks that carried the gradients,
        has the kind "fast" or "tcp".
        """
        return any(one.kind != "unknown" for one in self.decisive)


MOST = 100
"""Maximum number of networks in a record; networks that use TCP come first."""

_NAME = r"([A-Za-z0-9_. ;-]{1,80})"

_CARD = re.compile(r"\]([A-Za-z0-9_.-]{1,80}):[0-9]+/([A-Za-z]+)")

_LIBRARIES = {
    "gloo": ("Gloo",),
    "mpi": ("UCX", "libfabric", "PSM", "PSM2", "Open MPI"),
    "nccl": ("NCCL", "RCCL"),
}
"""Backend of an app -> libraries by which this backend sends gradients between nodes.

If the backend is NCCL, the MPI of Horovod and the Gloo of PyTorch send only small messages.
"""

_FAST_PROVIDERS = ("cxi", "efa", "efa-direct", "gni", "opx", "psm", "psm2", "psm3", "verbs")
_TCP_PROVIDERS = ("net", "sockets", "tcp", "udp")

_LOCAL = ("cma", "cuda", "gdr", "knem", "memory", "mm", "posix", "rocm", "self", "sysv", "xpmem",
          "ze")
"""Beginnings of the names of UCX's transports within a node."""

_FAST_UCX = ("dc", "gga", "rc", "ud", "ugni")
"""Beginnings of the names of UCX's transports over InfiniBand, RoCE and Cray's older network."""


def read(directory: Path, wanted: FabricName) -> FabricRecord:
    """Return the networks that carried the traffic between ranks, from `fabric.log` of a run.

    A file that cannot be read counts as empty.
    """
    try:
        text = read_plain(directory / LOG, LIMIT).decode(errors="replace")
    except (OSError, UsageError):
        text = ""
    return parse(wanted, text)


def parse(wanted: FabricName, text: str) -> FabricRecord:
    """Return the backend and the networks in `text`, the content of `fabric.log`."""
    texts: Counter[str] = Counter()
    for line in text.splitlines():
        if found := re.fullmatch(r" *([0-9]{1,12}) (.+)", line):
            texts[found[2].rstrip()] += int(found[1])
    backends = _matches(texts, r'"backend": "(gloo|mpi|nccl)"')
    carried = [*_nccl(texts), *_ucx(texts), *_open_mpi(texts)]
    if lines := backends["gloo"]:
        carried.append(Carrier(library="Gloo", transport="TCP", kind="tcp", lines=lines))
    # All links of a chain have the same backend. If the logs show several, it counts as unknown.
    backend = next(iter(backends)) if len(backends) == 1 else None
    return FabricRecord.model_validate(
        {"wanted": wanted, "backend": backend,
         "carried": sorted(carried, key=lambda one: one.kind != "tcp")[:MOST]}
    )


def _matches(texts: Mapping[str, int], pattern: str) -> Counter[str]:
    """Return the number of log lines for each distinct text that group 1 of `pattern` captures.

    `texts` maps each distinct line of the log to the number of its occurrences.
    """
    found: Counter[str] = Counter()
    for text, lines in texts.items():
        if match := re.fullmatch(pattern, text):
            found[match[1]] += lines
    return found


def _nccl(texts: Mapping[str, int]) -> Iterator[Carrier]:
    library = "RCCL" if "RCCL version" in texts else "NCCL"
    # Lines about channels show the network that was used; other lines only the selected network.
    networks = (_matches(texts, rf"via NET/{_NAME}/[0-9]+")
                or _matches(texts, rf"Using network {_NAME}"))
    for network, lines in networks.items():
        if network.startswith("IB"):
            cards = {name: kind for text in texts if text.startswith("NET/IB : Using")
                     for name, kind in _CARD.findall(text)}
            kinds = set(cards.values())
            yield Carrier(library=library, transport="RoCE" if kinds == {"RoCE"} else network,
                          interface=", ".join(sorted(cards)) or None, kind="fast", lines=lines)
        elif network == "Socket":
            names = _matches(texts, rf"NET/Socket : Using \[0\]{_NAME}")
            yield Carrier(library=library, transport=network,
                          interface=", ".join(sorted(names)) or None, kind="tcp", lines=lines)
        elif network == "OFI" or network.endswith("Libfabric"):
            providers = _matches(texts, rf"NET/OFI Selected [Pp]rovider is {_NAME}")
            for provider in providers or {"libfabric": lines}:
                yield Carrier(library=library, transport=provider, kind=_provider(provider),
                              lines=lines)
        else:
            yield Carrier(library=library, transport=network, kind="unknown", lines=lines)


def _provider(name: str) -> Kind:
    """Return the kind of network that a libfabric provider uses.

    Layers on top of a provider, such as `ofi_rxm` in `tcp;ofi_rxm`, are ignored.
    """
    core = [part for part in name.split(";") if not part.startswith("ofi_")]
    if any(part in _TCP_PROVIDERS for part in core):
        return "tcp"
    return "fast" if core and all(part in _FAST_PROVIDERS for part in core) else "unknown"


def _ucx(texts: Mapping[str, int]) -> Iterator[Carrier]:
    """Yield the transports of UCX endpoints to other nodes.

    Endpoints with a transport over shared memory are left out: they lead to ranks of the same node.
    """
    lanes: Counter[tuple[str, str]] = Counter()
    for text, lines in texts.items():
        found = re.fullmatch(
            r"(?:inter-node cfg#[0-9]+|ep_cfg\[[0-9]+\]):? ?[a-z_]+\(([A-Za-z0-9_/:. -]{1,4000})\)",
            text,
        )
        used = [tuple(lane.partition("/")[::2]) for lane in found[1].split()] if found else []
        if not any(transport.startswith(_LOCAL) for transport, _ in used):
            for transport, device in dict.fromkeys(used):
                lanes[transport, device] += lines
    for (transport, device), lines in lanes.items():
        kind: Kind = "tcp" if transport == "tcp" else "unknown"
        yield Carrier(library="UCX", transport=transport, interface=device or None, lines=lines,
                      kind="fast" if transport.startswith(_FAST_UCX) else kind)


def _open_mpi(texts: Mapping[str, int]) -> Iterator[Carrier]:
    """Yield the networks over which Open MPI sent messages without the library UCX."""
    components = _matches(texts, r"Using ([a-z0-9]+) btl for send")
    for name, kind in (("tcp", "tcp"), ("openib", "fast"), ("uct", "fast"), ("usnic", "unknown"),
                       ("ofi", "unknown")):
        if name in components:
            yield Carrier.model_validate({
                "library": "Open MPI", "transport": name, "kind": kind, "lines": components[name],
            })
    for provider, lines in _matches(texts, rf"mtl:ofi:prov: {_NAME}").items():
        if provider != "none":
            yield Carrier(library="libfabric", transport=provider, kind=_provider(provider),
                          lines=lines)
    for name, lines in _matches(texts, r"select: component (psm2?) selected").items():
        yield Carrier(library=name.upper(), transport=name, kind="fast", lines=lines)


_REMEDIES = {
    "Gloo": "Gloo has no other network; use Horovod with MPI or NCCL, or name `fabric: ethernet` in"
            " the site file for a cluster that is used with Gloo",
    "NCCL": "the job's log names the devices and libraries that a node lacks; `fabric_missing:"
            " refuse` in the site file keeps such a job from starting",
}
_REMEDIES |= dict.fromkeys(("RCCL", "UCX", "libfabric", "Open MPI"), _REMEDIES["NCCL"])


def fault(record: FabricRecord | None) -> str | None:
    """Return an error message with a remedy if gradients used TCP although the fabric is faster.

    The check of the throughput of such a run fails. Return None for all other runs.
    """
    if record is None or not record.slow:
        return None
    libraries = list(dict.fromkeys(one.library for one in record.slow))
    return (f"{' and '.join(libraries)} sent over TCP, although the fabric of the cluster is"
            f" {PROFILES[record.wanted].title}: {_REMEDIES[libraries[0]]}")


def unseen(record: FabricRecord | None) -> str | None:
    """Return a message with a remedy if the logs do not show which network carried the gradients.

    The throughput of such a run cannot be judged, because the run may have used TCP. Return None
    for all other runs.
    """
    if record is None or record.known or not PROFILES[record.wanted].fast:
        return None
    return (f"the fabric of the cluster is {PROFILES[record.wanted].title}, but the logs do not"
            " show which network carried the gradients between the nodes: `env` of the site file"
            " and of the recipe must not change the variables by which the libraries write logs")


def described(carried: Iterable[Carrier]) -> list[str]:
    """Return each network as text for reports."""
    return [
        f"{one.library}: {one.transport}" + (f" on {one.interface}" if one.interface else "")
        + {"fast": "", "tcp": " (TCP)", "unknown": " (unknown kind)"}[one.kind]
        for one in carried
    ]
