"""The memory that a measurement needs, and the memory that the nodes and devices have."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from collectives.library import Library
from collectives.operations import Operation
from collectives.settings import shown_size
from trainkit import node_memory
from trainkit.exits import ArgumentError


@dataclass(frozen=True)
class Demand:
    """The largest memory that one rank needs, and the free memory of its host or device.

    Attributes:
        place: name of the host, or of a device of the host; ranks of one place share its memory.
        needed: bytes of the buffers of the rank.
        free: bytes that are free in this place.
        operation: name of the operation that needs the most memory.
        size: size in bytes at which this operation needs this memory.
    """

    place: str
    needed: int
    free: int
    operation: str
    size: int


def demand(library: Library, points: Iterable[tuple[Operation, int, int]]) -> Demand:
    """Return the largest memory demand of this rank.

    Args:
        library: the library, which allocates the buffers.
        points: for each measurement the operation, the size in bytes, and the number of elements
            of a block.
    """
    need, operation, size = max(
        (library.needed_bytes(operation, elements), operation.name, size)
        for operation, size, elements in points
    )
    host = socket.gethostname()
    if library.device.type == "cuda":
        free = torch.cuda.mem_get_info(library.device)[0]
        return Demand(f"{library.device} of {host}", need, free, operation, size)
    return Demand(host, need, node_memory.free_bytes(), operation, size)


def check(demands: Sequence[Demand]) -> None:
    """Reject sizes that do not fit into memory; `demands` are the bytes that each rank needs.

    Raises:
        ArgumentError: the ranks of a node or a device need more memory than is free.
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


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB"
