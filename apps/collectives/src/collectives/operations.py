"""The measured operations: the meaning of `bytes`, the bus bandwidth, and the exact results.

Sizes and bus bandwidths are defined as in nccl-tests (doc/PERFORMANCE.md and src/*.cu,
https://github.com/NVIDIA/nccl-tests): `bytes` is the larger of the two buffers of a rank. The
messages between two ranks follow the OSU micro-benchmarks (osu_latency, osu_bw, osu_bibw,
https://mvapich.cse.ohio-state.edu/benchmarks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collectives import patterns
from collectives.patterns import Tile

WINDOW = 64
"""Messages that are under way before the receiver confirms them, as in osu_bw and osu_bibw."""
WINDOW_BYTES = 64 << 20
"""Maximum total size of the messages in a window, in bytes; a window of two may be larger."""

ROOT = 0
"""The rank that sends a broadcast and receives a reduction."""

Tiles = Callable[[int, int, int], Sequence[Tile]]
"""Function that returns one tile, a sequence of numbers, for each block of a buffer.

A block is filled with repetitions of its tile. The arguments of the function are the rank, the
number of ranks, and the largest exact integer of the number format.
"""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        name: name of the operation, as in `--operations`.
        key: beginning of the keys of its metrics.
        bus: function of the number of ranks: the bus bandwidth divided by the algorithm bandwidth.
        sent: function that returns the tiles (see `Tiles`) of a rank's send buffer, one for each
            block; empty if the rank sends nothing.
        expected: function that returns the tiles of the exact result on a rank; empty if the rank
            receives nothing.
        split: whether `bytes` is divided into one block for each rank.
        gathers: whether a rank sends one block and receives the blocks of all ranks.
        scatters: whether a rank sends a block for each rank and receives one.
        reduces: whether the operation adds numbers.
        pair: whether only the first and the last rank take part. If the job has several nodes,
            launchers place these two on different nodes.
        windowed: whether a call sends a window of messages, to measure a bandwidth.
        traffic: bytes that a message or a collective operation transfers, divided by `bytes`.
    """

    name: str
    key: str
    bus: Callable[[int], float]
    sent: Tiles
    expected: Tiles
    split: bool = False
    gathers: bool = False
    scatters: bool = False
    reduces: bool = False
    pair: bool = False
    windowed: bool = False
    traffic: int = 1

    @property
    def is_sized(self) -> bool:
        """Whether the operation moves data; a barrier does not."""
        return self.name != BARRIER

    def elements(self, size: int, width: int, ranks: int) -> int:
        """Return the number of elements of a block, at least 1.

        The larger buffer of the operation has `size` bytes, and may consist of one block per rank.

        Args:
            size: size of the larger buffer in bytes.
            width: bytes of an element.
            ranks: number of ranks.
        """
        return max(1, size // (width * self.blocks(ranks)))

    def blocks(self, ranks: int) -> int:
        """Return the number of blocks of the larger buffer: 1, or one for each rank."""
        return ranks if self.split else 1

    def takes_part(self, rank: int, ranks: int) -> bool:
        """Return whether `rank` takes part in the operation."""
        return not self.pair or rank in (0, ranks - 1)

    def parts(self, size: int) -> int:
        """Return the number of parts of a call, by which its time is divided.

        A collective operation is one part. A call that measures the latency is a round trip of two
        messages. A call that measures a bandwidth has as many messages as fit into `WINDOW_BYTES`,
        but at least two and at most `WINDOW`.
        """
        if self.windowed:
            return max(2, min(WINDOW, WINDOW_BYTES // size))
        return 2 if self.pair else 1

    def seconds(self, times: Sequence[float], size: int) -> float:
        """Return the time of the operation from the mean time of a call on each rank, in seconds.

        It is the maximum over the ranks, because the operation has ended when it has ended on all
        ranks. Rank 0 alone measures messages between two ranks, as in the OSU micro-benchmarks.
        """
        return (times[0] if self.pair else max(times)) / self.parts(size)

    def mean_seconds(self, times: Sequence[float], size: int) -> float:
        """Return the time as `seconds` does, but as the mean over the ranks, as in nccl-tests."""
        return (times[0] if self.pair else sum(times) / len(times)) / self.parts(size)

    def algorithm_bandwidth(self, size: int, seconds: float) -> float:
        """Return bytes / time in GB/s (1e9 bytes per second); `size` is in bytes."""
        return self.traffic * size / seconds / 1e9

    def bus_bandwidth(self, size: int, seconds: float, ranks: int) -> float:
        """Return the algorithm bandwidth multiplied by the bus factor of the operation, in GB/s."""
        return self.algorithm_bandwidth(size, seconds) * self.bus(ranks)


def _one(ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _nothing(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return ()


def _summand(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.summand(rank, 0, ranks, exact)]


def _summands(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.summand(rank, block, ranks, exact) for block in range(ranks)]


def _sum(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.total(0, ranks, exact)]


def _sum_at_root(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return _sum(rank, ranks, exact) if rank == ROOT else ()


def _own_sum(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.total(rank, ranks, exact)]


def _own(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(rank, 0)]


def _from_root(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(ROOT, 0)]


def _root_only(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return _own(rank, ranks, exact) if rank == ROOT else ()


def _from_all(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(source, 0) for source in range(ranks)]


def _to_each(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(rank, target) for target in range(ranks)]


def _from_each(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(source, rank) for source in range(ranks)]


def _from_other_end(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return [patterns.moved(ranks - 1 - rank, 0)] if rank in (0, ranks - 1) else ()


def _at_last(rank: int, ranks: int, exact: int) -> Sequence[Tile]:
    return _from_root(rank, ranks, exact) if rank == ranks - 1 else ()


BARRIER = "barrier"

OPERATIONS = {one.name: one for one in (
    Operation("all-reduce", "allreduce", _twice_others, _summand, _sum, reduces=True),
    Operation("broadcast", "broadcast", _one, _root_only, _from_root),
    Operation("reduce", "reduce", _one, _summand, _sum_at_root, reduces=True),
    Operation("all-gather", "allgather", _others, _own, _from_all, split=True, gathers=True),
    Operation("reduce-scatter", "reducescatter", _others, _summands, _own_sum, split=True,
              scatters=True, reduces=True),
    Operation("all-to-all", "alltoall", _others, _to_each, _from_each, split=True),
    Operation("latency", "latency", _one, _own, _from_other_end, pair=True),
    Operation("bandwidth", "bandwidth", _one, _root_only, _at_last, pair=True,
              windowed=True),
    Operation("bidirectional-bandwidth", "bibandwidth", _one, _own, _from_other_end, pair=True,
              windowed=True, traffic=2),
    Operation(BARRIER, "barrier", _one, _nothing, _nothing),
)}
"""Name -> operation, in the order of the measurement."""
