"""Read the files of a run: its metrics, and the state in its newest checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trainkit import checkpoint, metrics
from trainkit.outputs import CHECKPOINTS, METRICS
from trainkit.pieces import Stored

Leaves = dict[str, Any]
"""A state without nesting: path of a value in the nested state -> array, number or string."""

TIMED = {
    metrics.THROUGHPUT, metrics.DATA_WAIT, metrics.COMMUNICATION, metrics.TRAINING_SECONDS,
    metrics.EPOCH_SECONDS, metrics.PEAK_MEMORY, metrics.MODEL_FLOPS_UTILIZATION,
    metrics.HOST_ENERGY, metrics.NOT_READABLE, *metrics.OF_ENERGY,
}
"""Keys of metrics that differ between equal runs: times, rates, memory and energy."""
BEGUN = {metrics.RUN_START, metrics.RESUMED}
"""Keys of the lines in `metrics.jsonl` that mark the start of a run and each resume."""


def lines(out: Path) -> list[metrics.Line]:
    """Return the metrics of the run in `out`."""
    return metrics.parse((out / METRICS).read_bytes())


def values(out: Path, key: str) -> list[tuple[int, Any]]:
    """Return (step, value) for each logged value of the metric `key` that has a step."""
    return [
        (one["metadata"]["step"], one["value"]) for one in lines(out)
        if one["key"] == key and "step" in one["metadata"]
    ]


def told(out: Path) -> list[tuple[str, Any, Any]]:
    """Return (key, value, [step, epoch]) of each line of the metrics, except times and resumes.

    An interrupted and resumed run must have the same lines as a run without an interruption.
    """
    return [
        (one["key"], one["value"], [one["metadata"].get(key) for key in ("step", "epoch_num")])
        for one in lines(out) if one["key"] not in {*TIMED, metrics.RESUMED}
    ]


def result(out: Path) -> dict[str, Any]:
    """Return the content of `result.json` of a finished run, without times."""
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    return {key: value for key, value in found.items() if not key.endswith("seconds")}


def checkpoints(out: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return checkpoint.Checkpoints(out / CHECKPOINTS).files()


def parts(out: Path) -> Leaves:
    """Return the networks, optimizers and so on of the newest checkpoint as a flat dict."""
    return dict(_leaves(checkpoint.load(checkpoints(out)[-1])["parts"], ""))


def same(one: Leaves, other: Leaves) -> bool:
    """Return whether two trainings have bit-identical states."""
    return one.keys() == other.keys() and all(
        type(one[key]) is type(other[key]) and _bits(one[key]) == _bits(other[key]) for key in one
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    items: Any = None
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    if items is None:
        yield path, value.read() if isinstance(value, Stored) else value
    else:
        for key, item in items:
            yield from _leaves(item, f"{path}/{key}")


def _bits(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return repr(value)
