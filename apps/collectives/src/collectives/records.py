"""The files of a run: `metrics.jsonl`, `environment.json`, `collectives.json`, `result.json`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collectives import results
from collectives.library import Library
from collectives.operations import OPERATIONS
from collectives.results import Point, Results
from trainkit import atomic, metrics, outputs, provenance
from trainkit.exits import AppError
from trainkit.metrics import MetricsLog

PACKAGES = ("torch", "mpi4py", "horovod", "numpy", "trainkit", "collectives")
SELECTING = re.compile(
    r"OMPI_MCA_(btl|coll|mpi|mtl|osc|pml)(_\w+)?|(FI|GLOO|MPICH|MV2|NCCL|RCCL|UCX)_\w+"
    r"|HOROVOD_(CACHE_CAPACITY|CYCLE_TIME|FUSION_THRESHOLD|HIERARCHICAL_\w+|NUM_NCCL_STREAMS)"
)
"""Environment variables that configure the communication software."""
PRIVATE = re.compile(r"ADDR|COMM_ID|HOST|KEY|(?<!SUP)PORT|SECRET|TOKEN|URI")
"""Parts of names of variables. A variable with such a name is not recorded, because its value may
contain an address or a key.

Variables such as MPICH_GPU_SUPPORT_ENABLED contain the letters of PORT, and are recorded."""

SECONDS = "seconds"
SMALL = {4: "4b"}
"""Size in bytes -> its text in names of metrics of time, such as `allreduce_latency_4b`."""
LARGE = {4 << 20: "4mib", 16 << 20: "16mib", 1 << 30: "1gib", 8 << 30: "8gib"}
"""Size in bytes -> its text in names of metrics of bandwidth, such as `allreduce_busbw_4mib`."""


class Log:
    """The log `metrics.jsonl` of a run; `scores` maps metric keys of `app.yaml` to values."""

    def __init__(self, log: MetricsLog, library: Library) -> None:
        self.log, self._library = log, library
        self.steps = 0
        self.scores: dict[str, float] = {}

    def point(self, point: Point, step: int) -> None:
        """Log the metrics of one operation at one size, as the measurement number `step`."""
        self.steps = step
        operation = OPERATIONS[point.operation]
        self.log.event(
            SECONDS, point.seconds.median, step=step, operation=point.operation, bytes=point.bytes,
            dtype=str(self._library.dtype).removeprefix("torch."), iterations=point.iterations,
            **{key: value for key, value in asdict(point.seconds).items() if key != "median"},
            mean_over_ranks=point.mean_seconds,
        )
        if point.busbw_gb_s is not None:
            self.log.event(f"{operation.key}_busbw", point.busbw_gb_s, step=step, bytes=point.bytes)
        for key, value in classified(point).items():
            self.scores[key] = value
            self.log.event(key, value, step=step)


def classified(point: Point) -> dict[str, float]:
    """Return the metrics of `app.yaml` that one measurement yields: key -> GB/s or seconds.

    A key consists of operation, quantity (`latency` or `busbw`) and size. The key of an operation
    between two ranks has no quantity, because the operation itself is named after a quantity, such
    as `latency`.
    """
    operation, seconds = OPERATIONS[point.operation], point.seconds.median
    if not operation.is_sized:
        return {f"{operation.key}_latency": seconds}
    word = "" if operation.pair else "_latency"
    small, large = SMALL.get(point.size), LARGE.get(point.size)
    if small is not None and not operation.windowed:
        return {f"{operation.key}{word}_{small}": seconds}
    if large is not None and point.busbw_gb_s is not None and operation.name != "latency":
        word = "" if operation.pair else "_busbw"
        return {f"{operation.key}{word}_{large}": point.busbw_gb_s}
    return {}


def begin(folder: Path, library: Library, facts: Mapping[str, Any]) -> Log:
    """Create the run in `folder`, on rank 0 only, and write `environment.json`.

    Args:
        folder: the `--out` folder.
        library: the library, which connects the ranks.
        facts: what `library.facts` returns.

    Raises:
        ArgumentError: the folder has a run already, or cannot be written to.
    """
    environment = provenance.environment(PACKAGES, library.strategy)
    environment["communication"] = {
        "library": library.name, "backend": library.backend, **facts,
        "variables": selecting(os.environ),
    }
    return Log(outputs.start_new(folder, environment), library)


def selecting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that configure communication libraries, by name.

    They are sorted, and variables with secrets are left out; an example is `NCCL_ALGO`.
    """
    return {
        name: value for name, value in sorted(environment.items())
        if SELECTING.fullmatch(name) and not PRIVATE.search(name)
    }


@contextlib.contextmanager
def running(log: Log | None, hosts: Sequence[str]) -> Iterator[None]:
    """Log the start of the run, and its end if the `with` block raises an AppError."""
    if log is None:
        yield
        return
    with log.log:
        log.log.start(metrics.RUN_START, ranks=len(hosts), hosts=list(hosts))
        try:
            yield
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                log.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=log.steps)
            raise


def finish(folder: Path, log: Log, found: Results, seconds: float) -> None:
    """Write `collectives.json`, the end of the metrics, and `result.json`, in this order.

    Args:
        folder: the `--out` folder.
        log: the metrics.
        found: the results.
        seconds: duration of the measurement.
    """
    results.write(folder, found)
    log.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=log.steps)
    atomic.write_json(folder / outputs.RESULT, {
        "status": metrics.SUCCESS, "steps": log.steps, "seconds": seconds,
        "evaluation": log.scores,
    })
