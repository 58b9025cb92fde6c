"""The bus bandwidth of an all-reduce in disjoint groups of ranks, all groups at the same time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from collectives import patterns
from collectives.operations import OPERATIONS
from collectives.patterns import EXACT
from collectives.settings import shown_size
from trainkit.exits import RanksDifferError
from trainkit.torch.strategy import TorchStrategy

REPETITIONS = 3
MOST_CALLS = 1000
SHRINK = 8
"""Factor by which the size in bytes is divided until the calls fit into the available time."""
SMALLEST = 1 << 16
DTYPE = torch.float32
ALL_REDUCE = OPERATIONS["all-reduce"]

Groups = Sequence[Sequence[int]]
"""The ranks of each group; no rank is in two groups, and some ranks may be in no group."""


@dataclass(frozen=True)
class Rates:
    """The bus bandwidth of each group in GB/s, and the size of the all-reduce in bytes."""

    gb_s: list[float]
    size: int


def measure(
    strategy: TorchStrategy, groups: Groups, size: int, seconds: float,
    beat: Callable[[str], object],
) -> Rates:
    """Measure an all-reduce in each group, and check its result; all ranks must call this function.

    All groups make the same number of calls of the same size. The size is divided by `SHRINK` until
    the calls of the slowest group fit into `seconds`.

    Args:
        strategy: the strategy that connects the ranks.
        groups: the groups.
        size: largest size in bytes.
        seconds: time to spend.
        beat: function that is called after each step, for the watchdog.

    Raises:
        RanksDifferError: a result is wrong.
    """
    own = next((list(group) for group in groups if strategy.rank in group), None)
    sizes = [size]
    while sizes[-1] // SHRINK >= SMALLEST:
        sizes.append(sizes[-1] // SHRINK)
    group = None if own is None else _connect(strategy, own)
    try:
        beat("a first all-reduce")
        member = _Member(strategy, groups, own, group)
        member.checked(sizes[-1])  # connects the ranks
        pilot = member.checked(sizes[-1])
        chosen = next((one for one in sizes
                       if pilot * one / sizes[-1] * (REPETITIONS + 1) <= seconds), sizes[-1])
        beat(f"all-reduce of {shown_size(chosen)}")
        each = member.checked(chosen)
        calls = max(1, min(MOST_CALLS, int(seconds / REPETITIONS / max(each, 1e-9))))
        rows = [member.timed(chosen, calls) for _ in range(REPETITIONS)]
    finally:
        if group is not None and group is not dist.group.WORLD:
            dist.destroy_process_group(group)
    times = [
        statistics.median(max(row[rank] for rank in group) for row in rows) for group in groups
    ]
    return Rates([
        ALL_REDUCE.bus_bandwidth(chosen, one, len(group))
        for one, group in zip(times, groups, strict=True)
    ], chosen)


def _connect(strategy: TorchStrategy, own: list[int]) -> dist.ProcessGroup | None:
    if len(own) == strategy.size:
        return dist.group.WORLD
    # Only the members of a group make this call, so that all groups connect at the same time.
    found: dist.ProcessGroup = dist.new_group(own, use_local_synchronization=True)
    return found


class _Member:
    """The part of this rank in the measurement of an all-reduce in disjoint groups of ranks.

    A rank that is in no group performs no all-reduce; it only waits for the other ranks.
    """

    def __init__(
        self, strategy: TorchStrategy, groups: Groups, own: list[int] | None,
        group: dist.ProcessGroup | None,
    ) -> None:
        self._strategy, self._groups, self._own, self._group = strategy, groups, own, group

    def checked(self, size: int) -> float:
        """Perform the operation once, check the result, and return the time of the slowest rank.

        Raises:
            RanksDifferError: the result is wrong on a rank; all ranks raise it.
        """
        fault, seconds = None, 0.0
        self._strategy.any(False)
        if self._own is not None:
            place, ranks, exact = self._own.index(self._strategy.rank), len(self._own), EXACT[DTYPE]
            buffer = self._buffer(size)
            patterns.fill(buffer, ALL_REDUCE.sent(place, ranks, exact))
            self._strategy.synchronize()
            started = time.perf_counter()
            dist.all_reduce(buffer, group=self._group)
            self._strategy.synchronize()
            seconds = time.perf_counter() - started
            fault = patterns.fault(buffer, ALL_REDUCE.expected(place, ranks, exact))
        found = self._strategy.gather((seconds, fault))
        wrong = [rank for rank, (_, fault) in enumerate(found) if fault is not None]
        if wrong:
            group = next(group for group in self._groups if wrong[0] in group)
            error = RanksDifferError(
                f"all-reduce of {shown_size(size)} between the ranks "
                f"{', '.join(map(str, group))} has a wrong result on rank {wrong[0]}: a network "
                "device, its driver or a library is faulty",
                code="result-wrong",
            )
            error.shared = True
            raise error
        return max(seconds for seconds, _ in found)

    def timed(self, size: int, calls: int) -> list[float]:
        """Return the mean seconds of a call on each rank, after a barrier."""
        buffer = self._buffer(size) if self._own is not None else None
        if buffer is not None:
            buffer.zero_()  # other numbers would grow with each sum
        self._strategy.synchronize()
        self._strategy.any(False)
        started = time.perf_counter()
        for _ in range(calls if buffer is not None else 0):
            dist.all_reduce(buffer, group=self._group)
        self._strategy.synchronize()
        return self._strategy.gather((time.perf_counter() - started) / calls)

    def _buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size // DTYPE.itemsize, dtype=DTYPE, device=self._strategy.device)
