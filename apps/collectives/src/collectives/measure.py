"""Measure collective operations and messages between ranks, from the first check to the fit.

The method:

1. The ranks connect. A single rank, or ranks that are not connected to each other, are refused.
2. Sizes that do not fit into the memory are refused, and operations that the library does not have
   are left out, before anything is measured.
3. For each operation and size, the result is compared with the exact result on each rank, calls are
   made without timing, and `--repetitions` repetitions are timed. Each repetition begins with a
   barrier. All repetitions together have as many calls as fit into `--point-seconds`, the same
   number on all ranks (`timing.py`).
4. Each rank computes the mean time of the calls of a repetition; the time of the repetition is the
   largest mean of all ranks. The median over the repetitions gives algorithm and bus bandwidth
   (`operations.py`).
5. A model of the time is fitted for each operation (`fit.py`).

`libraries/` contains the calls of each library, `patterns.py` the data and their exact results.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from collectives import libraries, memory, records, results, tables, timing
from collectives.fit import fit
from collectives.library import Library
from collectives.operations import OPERATIONS, Operation
from collectives.records import Log
from collectives.results import Point, Results
from collectives.settings import MeasureSettings, shown_size
from collectives.timing import Effort
from trainkit.console import Console
from trainkit.exits import AppError, ArgumentError
from trainkit.ranks import detect
from trainkit.strategy import Strategy
from trainkit.watchdog import Watchdog

T = TypeVar("T")
Plan = list[tuple[Operation, int, int]]
"""One entry per measurement: operation, size in bytes, and number of elements of a block.

Some operations divide a buffer into one block for each rank; others have a single block.
"""

MEASURING = "measuring"


def main(settings: MeasureSettings) -> None:
    """Measure as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the measurement failed; the error has the exit code of the app contract.
    """
    if settings.library != "mpi":  # MPI counts its ranks itself
        refuse_single(detect().size)
    library = libraries.connect(settings)
    with library.strategy.explained():
        refuse_single(library.strategy.size)
        measurement = Measurement(settings, library)
        with measurement.watchdog:
            measurement.run()
        library.close()


def refuse_single(size: int) -> None:
    """Refuse a job of one rank; `size` is the number of ranks.

    Raises:
        ArgumentError: there is one rank.
    """
    if size == 1:
        raise ArgumentError(
            "there is one rank, and nothing to measure: start several, with mpirun -n 2 python -m "
            "collectives measure …, torchrun --nproc-per-node 2 -m collectives measure …, or srun",
            code="ranks-too-few",
        )


class Measurement:
    """One run of the command `measure`, as this rank executes it."""

    def __init__(self, settings: MeasureSettings, library: Library) -> None:
        assert settings.out is not None  # noqa: S101 - `settings.check` refuses None
        self.settings, self.library, self.strategy = settings, library, library.strategy
        self.folder: Path = settings.out
        self.left_out: dict[str, str] = {}
        self.points: list[Point] = []
        self.effort = Effort(
            settings.iterations, settings.repetitions, settings.warmup, settings.point_seconds
        )
        self.watchdog = Watchdog(
            self.strategy.rank, self.strategy.size, self.folder / "hanging", settings.patience,
            subject="measurement",
        )

    def run(self) -> None:
        """Check the requested operations and sizes, measure them, and write the results."""
        started = time.perf_counter()
        self.watchdog.beat("preparing", slow=True)
        wanted = self.operations()
        plan = [
            (operation, size, elements)
            for operation in wanted for size, elements in self.sizes(operation)
        ]
        demands = self.strategy.gather(memory.demand(self.library, plan))
        together(self.strategy, lambda: memory.check(demands))
        hosts = self.strategy.gather(socket.gethostname())
        facts = self.library.facts()
        log = together(self.strategy, lambda: records.begin(self.folder, self.library, facts))
        with records.running(log, hosts):
            self.measure_all(plan, hosts, log)
            if log is not None:
                found = self.results(hosts)
                records.finish(self.folder, log, found, time.perf_counter() - started)
                print(tables.report(found))

    def measure_all(self, plan: Plan, hosts: list[str], log: Log | None) -> None:
        """Measure each entry of `plan`, and show the progress; rank 0 writes results to `log`."""
        console = Console(len(plan), quiet=log is None)
        console.line(tables.heading(self.library, hosts))
        for name, reason in self.left_out.items():
            console.line(f"left out: {name}: {reason}")
        with contextlib.closing(console):
            for number, (operation, size, elements) in enumerate(plan, 1):
                self.points.append(self.measure(operation, size, elements))
                if log is not None:
                    log.point(self.points[-1], number)
                console.step()
                if number == len(plan) or plan[number][0] is not operation:
                    console.progress(tables.progress(self.points, len(plan)))

    def operations(self) -> list[Operation]:
        """Return the operations to measure, and note why others are left out.

        An operation is left out on all ranks if the library refuses it on any rank: only two ranks
        try an operation that sends messages between two ranks, and the other ranks see no error.

        Raises:
            ArgumentError: the library does not have an operation that the user named.
        """
        named = self.settings.operations
        found = []
        for operation in OPERATIONS.values():
            if named is not None and operation.name not in named:
                continue
            reasons = self.strategy.gather(self.library.lacks(operation))
            reason = next((one for one in reasons if one is not None), None)
            if reason is None:
                found.append(operation)
            elif named is None:
                self.left_out[operation.name] = reason
            else:
                raise shared(ArgumentError(
                    f"--operations {operation.name}: {reason}; leave it out, or use another "
                    "--library, --backend or --dtype",
                    code="operation-missing",
                ))
        return found

    def sizes(self, operation: Operation) -> list[tuple[int, int]]:
        """Return (size in bytes, number of elements in a block) for the requested sizes.

        The larger buffer of an operation consists of one block, or of one block for each rank.

        Of sizes with the same number of elements, only the first is returned: all sizes that are
        too small for one element per block are measured as one size.

        Raises:
            ArgumentError: a block has more elements than the library can count.
        """
        if not operation.is_sized:
            return [(0, 0)]
        width, most = self.library.dtype.itemsize, self.library.most_elements
        found: dict[int, int] = {}
        for size in self.settings.sizes:
            elements = operation.elements(size, width, self.strategy.size)
            found.setdefault(elements, size)
            if most is not None and elements > most:
                raise shared(ArgumentError(
                    f"{operation.name} of {shown_size(size)} has {elements} elements in a block, "
                    f"and this MPI library counts up to {most}: use a smaller --max-bytes, or an "
                    "MPI library of version 4.0 of the standard",
                    code="argument-invalid",
                ))
        return [(size, elements) for elements, size in found.items()]

    def measure(self, operation: Operation, size: int, elements: int) -> Point:
        """Measure one operation at one size."""
        ranks = self.strategy.size
        count = elements * operation.blocks(ranks) * self.library.dtype.itemsize

        def moved() -> None:
            self.watchdog.beat(MEASURING, detail=f"{operation.name} of {shown_size(count)}")

        moved()
        found = timing.measure(self.library, operation, elements, self.effort, moved)
        seconds = timing.spread(found.seconds)
        rates = (
            operation.algorithm_bandwidth(count, seconds.median),
            operation.bus_bandwidth(count, seconds.median, ranks),
        ) if operation.is_sized else (None, None)
        return Point(
            operation.name, size, count, found.iterations, seconds,
            timing.spread(found.mean_seconds).median, *rates,
        )

    def results(self, hosts: list[str]) -> Results:
        """Return the content of `collectives.json`: all measurements, and a fit per operation."""
        fits = [
            fit(name, [one.bytes for one in points], [one.seconds.median for one in points])
            for name in dict.fromkeys(one.operation for one in self.points)
            for points in [[one for one in self.points if one.operation == name]]
        ]
        return Results(
            results.SCHEMA, self.library.name, self.library.backend, self.library.device.type,
            self.settings.dtype, self.strategy.size, hosts, self.settings.repetitions,
            self.settings.fusion_tensors, self.left_out, self.points,
            [one for one in fits if one is not None],
        )


def shared(error: AppError) -> AppError:
    """Mark an error that all ranks raise at the same moment, so that only rank 0 reports it."""
    error.shared = True
    return error


def together(strategy: Strategy, action: Callable[[], T]) -> T | None:
    """Perform `action` on rank 0; if it fails, raise the error on all ranks, so that no rank waits.

    Returns:
        The result of the action on rank 0, None on the others.
    """
    found: T | None = None
    error: AppError | None = None
    if strategy.is_main:
        try:
            found = action()
        except AppError as caught:
            error = caught
    error = strategy.share(error)
    if error is not None:
        raise shared(error)
    return found
