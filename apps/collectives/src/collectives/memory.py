"""The memory that a measurement needs, and the memory that the nodes and devices have."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from collectives.library import Library
from collectives.operations import Operation
from collectives.settings import shown_size
from trainkit.exits import ArgumentError

CGROUPS = Path("/sys/fs/cgroup")
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Demand:
    """What one rank needs at its largest size, and what its node or device has.

    Attributes:
        place: the host, or the host and its device; ranks with the same place share the memory.
        needed: bytes of the buffers of the rank.
        free: bytes that are free in this place.
        operation: the operation that needs most.
        size: its size in bytes.
    """

    place: str
    needed: int
    free: int
    operation: str
    size: int


def demand(library: Library, points: Iterable[tuple[Operation, int, int]]) -> Demand:
    """Return the largest demand of this rank; `points` are operations, sizes and elements."""
    need, operation, size = max(
        (library.needed_bytes(operation, elements), operation.name, size)
        for operation, size, elements in points
    )
    host = socket.gethostname()
    if library.device.type == "cuda":
        free = torch.cuda.mem_get_info(library.device)[0]
        return Demand(f"{library.device} of {host}", need, free, operation, size)
    return Demand(host, need, free_bytes(), operation, size)


def check(demands: Sequence[Demand]) -> None:
    """Refuse sizes that do not fit into the memory; `demands` are those of all ranks.

    Raises:
        ArgumentError: the ranks of a node or a device need more than it has.
    """
    for place in sorted({one.place for one in demands}):
        there = [one for one in demands if one.place == place]
        needed, free = sum(one.needed for one in there), min(one.free for one in there)
        if needed > free:
            largest = max(there, key=lambda one: one.needed)
            raise ArgumentError(
                f"{largest.operation} of {shown_size(largest.size)} needs {_gib(needed)} for the "
                f"{len(there)} ranks on {place}, which has {_gib(free)} free: use a smaller "
                "--max-bytes, or fewer ranks per node",
                code="memory-insufficient",
            )


def free_bytes(memory: Path = MEMORY, cgroups: Path = CGROUPS, own: str | None = None) -> int:
    """Return the bytes of main memory that this process can still allocate.

    Args:
        memory: file with the state of the whole node.
        cgroups: folder of the control groups (version 2), whose limits count, too.
        own: path of the control group of this process below `cgroups`; None: read from Linux.
    """
    lines = memory.read_text(encoding="ascii").splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable:"))
    found = [int(available.split()[1]) * 1024]
    if own is None:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next((line[3:] for line in groups if line.startswith("0::")), "/")
    group = cgroups / own.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(cgroups):
            break
        with contextlib.suppress(OSError, ValueError):  # the root has no limit, others say "max"
            limit = int((folder / "memory.max").read_text(encoding="ascii"))
            used = int((folder / "memory.current").read_text(encoding="ascii"))
            found.append(max(0, limit - used))
    return min(found)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB"
