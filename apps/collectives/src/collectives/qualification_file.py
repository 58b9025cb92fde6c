"""`qualification.json`: what `qualify` has measured on each node, for other programs.

The README documents the file. `trimaran doctor --measure` reads it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from trainkit import atomic

NAME = "qualification.json"
SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class NodeRates:
    """The measurements of one node. GB are 1e9 bytes, TFLOP are 1e12 operations.

    Attributes:
        name: name of the node in the batch system, or its host name.
        ranks: numbers of the ranks on the node.
        device: model of the devices of the node.
        threads: number of CPU threads of a rank.
        gemm_tflop_s: rate of the matrix product on each rank, all ranks at once.
        memory_gb_s: bandwidth of the STREAM triad on each rank, all ranks at once.
        storage_read_gb_s: sequential read of a file by the first rank of each node at the same
            time, or null if the read failed.
        storage_reads_other: whether the file was written by another node, so that it cannot be in
            the page cache of this node.
        import_first_s: time of the first import of PyTorch by all ranks of the node at once, with
            its files removed from the page cache where the system permits it.
        import_again_s: time of an import in a new process afterwards, or null if the import failed
            or took too long.
        all_reduce_gb_s: bus bandwidth of an all-reduce over the ranks of the node, or null if the
            node has one rank.
        faults: messages about failures on the node.
    """

    name: str
    ranks: list[int]
    device: str
    threads: int
    gemm_tflop_s: list[float]
    memory_gb_s: list[float]
    storage_read_gb_s: float | None
    storage_reads_other: bool
    import_first_s: float
    import_again_s: float | None
    all_reduce_gb_s: float | None
    faults: list[str]


@dataclasses.dataclass(frozen=True)
class PairRate:
    """The bus bandwidth of an all-reduce over all ranks of two nodes, in GB/s."""

    nodes: list[str]
    all_reduce_gb_s: float


@dataclasses.dataclass(frozen=True)
class Method:
    """The sizes, number format and rounds of a qualification.

    Attributes:
        gemm_order: order n of the square matrices.
        gemm_dtype: number format of the matrices.
        triad_bytes: bytes of each of the three arrays.
        storage_bytes: maximum size of the file that each node reads from storage.
        all_reduce_bytes: size of the all-reduce over all ranks; 0 if it was not measured.
        node_bytes: size of the all-reduce within a node; 0 if it was not measured.
        pair_bytes: size of the all-reduce between two nodes; 0 if it was not measured.
        rounds: number of measured rounds of disjoint pairs.
        all_rounds: number of rounds that would be needed to measure all pairs.
    """

    gemm_order: int
    gemm_dtype: str
    triad_bytes: int
    storage_bytes: int
    all_reduce_bytes: int
    node_bytes: int
    pair_bytes: int
    rounds: int
    all_rounds: int


@dataclasses.dataclass(frozen=True)
class Qualification:
    """The content of `qualification.json`.

    Attributes:
        schema: version of the format.
        date: start of the measurement, in UTC, as ISO 8601.
        backend: backend of torch.distributed, such as gloo or nccl, or null if there is one rank.
        device: cpu or cuda.
        seconds: duration from the start of rank 0 to the last measurement.
        method: sizes, number format and rounds.
        nodes: the nodes, in the order of their ranks.
        all_reduce_gb_s: bus bandwidth of an all-reduce over all ranks, or null if there is one
            rank.
        pairs: the measured pairs of nodes.
    """

    schema: int
    date: str
    backend: str | None
    device: str
    seconds: float
    method: Method
    nodes: list[NodeRates]
    all_reduce_gb_s: float | None
    pairs: list[PairRate]


def write(folder: Path, found: Qualification) -> None:
    """Write `qualification.json` to `folder`, atomically."""
    atomic.write_json(folder / NAME, dataclasses.asdict(found))
