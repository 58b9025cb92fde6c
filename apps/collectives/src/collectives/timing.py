"""Check one operation at one size, and measure its time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

from collectives import patterns
from collectives.library import Call, Case, Library
from collectives.operations import Operation
from collectives.patterns import EXACT
from collectives.results import Spread
from collectives.settings import shown_size
from trainkit.exits import RanksDifferError

WARM = 0.2
"""Largest fraction of the time of a measurement that its warm-up takes."""


@dataclass(frozen=True)
class Effort:
    """The numbers of calls and the time for the measurement of one operation at one size.

    Attributes:
        iterations: largest number of calls in a repetition.
        repetitions: number of timed repetitions.
        warmup: largest number of calls before the first repetition.
        seconds: time for all repetitions, in seconds; it may further limit the number of calls.
    """

    iterations: int
    repetitions: int
    warmup: int
    seconds: float


@dataclass(frozen=True)
class Times:
    """The measured times of one operation at one size, in seconds.

    Attributes:
        iterations: calls in a repetition.
        seconds: time of the operation in each repetition: see `Operation.seconds`.
        mean_seconds: mean over the ranks in each repetition: see `Operation.mean_seconds`.
    """

    iterations: int
    seconds: list[float]
    mean_seconds: list[float]


def measure(
    library: Library, operation: Operation, elements: int, effort: Effort,
    moved: Callable[[], object],
) -> Times:
    """Measure one operation with blocks of `elements` elements.

    The result is checked before and after the timed calls. All ranks make the same number of
    calls, which follows from the slowest rank. Each repetition (a series of calls) begins with a
    barrier. No barriers separate the calls of a repetition, so that a broadcast may overlap with
    the next one; nccl-tests does the same.

    Args:
        library: the library, which connects the ranks.
        operation: the operation.
        elements: elements of a block.
        effort: the number of calls and repetitions, and the time for them.
        moved: function that is called after each repetition, for the watchdog.

    Raises:
        RanksDifferError: a result is wrong on a rank.
    """
    case = library.prepare(operation, elements)
    timed = case.call if operation.takes_part(library.strategy.rank, library.strategy.size) else _no
    first = check(library, operation, case, elements)
    first = max(library.strategy.gather(first))
    warmup = _calls(effort.seconds * WARM, first, effort.warmup)
    lead = 1 if operation.pair else 0
    warm = max(library.strategy.gather(_repetition(library, timed, warmup, lead)))
    iterations = _calls(effort.seconds / effort.repetitions, warm, effort.iterations)
    own = []
    for _ in range(effort.repetitions):
        own.append(_repetition(library, timed, iterations, lead))
        moved()
    rows = list(zip(*library.strategy.gather(own), strict=True))
    check(library, operation, case, elements)
    size = _bytes(library, operation, elements)
    return Times(
        iterations, [operation.seconds(row, size) for row in rows],
        [operation.mean_seconds(row, size) for row in rows],
    )


def check(library: Library, operation: Operation, case: Case, elements: int) -> float:
    """Perform the operation once with known data, and compare the result with the exact one.

    Returns:
        The seconds of the call.

    Raises:
        RanksDifferError: the result is wrong on a rank; all ranks raise it.
    """
    rank, ranks = library.strategy.rank, library.strategy.size
    exact = EXACT[library.dtype]
    if case.receive is not None:
        patterns.fill(case.receive, ())
    if case.send is not None:
        patterns.fill(case.send, operation.sent(rank, ranks, exact))
    library.barrier()
    started = time.perf_counter()
    returned = case.call()
    library.synchronize()
    seconds = time.perf_counter() - started
    result = returned if operation.name in library.returned else case.receive
    found = None
    if result is not None:
        found = patterns.fault(result, operation.expected(rank, ranks, exact))
    faults = library.strategy.gather(found)
    for number, fault in enumerate(faults):
        if fault is not None:
            size = _bytes(library, operation, elements)
            raise RanksDifferError(
                f"{operation.name} of {shown_size(size)} has a wrong result on rank {number}: "
                f"element {fault.position} is {fault.found:g}, and must be {fault.expected:g}; "
                f"{sum(fault is not None for fault in faults)} of {ranks} ranks have wrong results."
                " A network device, its driver or a library is faulty; other results of these "
                "nodes are not to be trusted",
                code="result-wrong",
            )
    return seconds


def spread(seconds: Sequence[float]) -> Spread:
    """Return the smallest, the quartiles and the largest of the times of the repetitions."""
    if len(seconds) == 1:
        return Spread(*[seconds[0]] * 5)
    q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(min(seconds), q1, median, q3, max(seconds))


def _repetition(library: Library, call: Call, iterations: int, lead: int) -> float:
    """Return the mean seconds of a call on this rank, after a barrier and `lead` untimed calls.

    Ranks leave a barrier at different times. A message between them before the clock starts, as in
    the OSU micro-benchmarks, keeps this difference out of the time of the first timed message.
    """
    library.barrier()
    for _ in range(lead):
        call()
    library.synchronize()
    started = time.perf_counter()
    for _ in repeat(None, iterations):
        call()
    library.synchronize()
    return (time.perf_counter() - started) / iterations


def _calls(seconds: float, each: float, most: int) -> int:
    """Return how many calls of `each` seconds fit into `seconds`, from 1 to `most`."""
    return max(1, min(most, int(seconds / max(each, 1e-9))))


def _bytes(library: Library, operation: Operation, elements: int) -> int:
    return elements * operation.blocks(library.strategy.size) * library.dtype.itemsize


def _no() -> None:
    """Do nothing: the timed call of a rank that takes no part in the operation."""
