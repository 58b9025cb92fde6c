"""The memory that a measurement needs, and the memory that the nodes and devices have."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from collectives.library import Library
from collectives.operations import Operation
from collectives.settings import shown_size
from trainkit.exits import ArgumentError

CGROUPS = Path("/sys/fs/cgroup")
MEMORY = Path("/proc/meminfo")


class GroupFiles(NamedTuple):
    """The names in the folder of a control group that describe its memory.

    Attributes:
        limit: file with the limit in bytes.
        used: file with the bytes in use.
        cached: keys of `memory.stat` that count the pages of cached files, which can be freed.
    """

    limit: str
    used: str
    cached: tuple[str, str]


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes",
                       ("total_inactive_file", "total_active_file"))
VERSION_2 = GroupFiles("memory.max", "memory.current", ("inactive_file", "active_file"))


@dataclass(frozen=True)
class Demand:
    """The largest memory that one rank needs, and the free memory of its host or device.

    Attributes:
        place: name of the host, or of a device of the host; ranks of one place share its memory.
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
        cgroups: folder of the control groups (version 1 or 2), whose limits count, too.
        own: control groups of this process, as text of /proc/self/cgroup; None: read this file.
    """
    lines = memory.read_text(encoding="ascii").splitlines()
    available = next(line for line in lines if line.startswith("MemAvailable:"))
    found = [int(available.split()[1]) * 1024]
    if own is None:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    for line in own.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (cgroups / "memory", VERSION_1) if controllers else (cgroups, VERSION_2)
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            with contextlib.suppress(OSError, ValueError):  # the group has no limit
                found.append(_left(folder, names))
    return min(found)


def _left(group: Path, names: GroupFiles) -> int:
    """Return the bytes that a control group may still use; cached files make room if needed.

    Raises:
        OSError: the group has no limit.
        ValueError: the limit is the word "max".
    """
    limit = int((group / names.limit).read_text(encoding="ascii"))
    used = int((group / names.used).read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, count = line.partition(" ")
            if key in names.cached:
                used -= int(count)
    return max(0, limit - max(0, used))


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB"
