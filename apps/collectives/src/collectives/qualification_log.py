"""`metrics.jsonl`, `environment.json` and `result.json` of a qualification, written by rank 0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collectives.qualification_file import Qualification
from trainkit import atomic, metrics, outputs
from trainkit.exits import AppError
from trainkit.metrics import MetricsLog

PACKAGES = ("torch", "numpy", "trainkit", "collectives")
STEP = 1
"""Number of the only step in the metrics log: the whole qualification is one step."""


def begin(folder: Path, environment: Mapping[str, Any]) -> MetricsLog:
    """Create the run in `folder`, on rank 0 only.

    Raises:
        ArgumentError: the folder has a run already, or cannot be written to.
    """
    return outputs.start_new(folder, environment)


@contextlib.contextmanager
def running(log: MetricsLog | None, nodes: Sequence[str]) -> Iterator[None]:
    """Log the start of the run, and its end if the `with` block raises an AppError.

    Args:
        log: the metrics log; None on all ranks except rank 0.
        nodes: name of the node of each rank.
    """
    if log is None:
        yield
        return
    with log:
        log.start(metrics.RUN_START, ranks=len(nodes), hosts=list(nodes))
        try:
            yield
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=0)
            raise


def slowest(found: Qualification) -> dict[str, float]:
    """Return the metrics of `app.yaml`: the values of the slowest device, node or pair."""
    values: dict[str, list[float | None]] = {
        "slowest_gemm": [one for node in found.nodes for one in node.gemm_tflop_s],
        "slowest_memory": [one for node in found.nodes for one in node.memory_gb_s],
        "slowest_storage": [node.storage_read_gb_s for node in found.nodes],
        "slowest_pair": [pair.all_reduce_gb_s for pair in found.pairs],
        "qualify_allreduce": [found.all_reduce_gb_s],
    }
    known = {name: [one for one in all_of if one is not None] for name, all_of in values.items()}
    return {name: min(all_of) for name, all_of in known.items() if all_of}


def finish(folder: Path, log: MetricsLog, found: Qualification) -> None:
    """Write the metrics, the end of the run, and `result.json`, in this order."""
    scores = slowest(found)
    for key, value in scores.items():
        log.event(key, value, step=STEP)
    log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=STEP)
    atomic.write_json(folder / outputs.RESULT, {
        "status": metrics.SUCCESS, "steps": STEP, "seconds": found.seconds, "evaluation": scores,
    })
