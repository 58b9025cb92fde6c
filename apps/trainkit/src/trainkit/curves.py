"""Read the curves of a finished or unfinished run from its `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainkit import metrics
from trainkit.exits import DataError
from trainkit.outputs import METRICS


@dataclass(frozen=True)
class Curve:
    """The values of one metric in the order of time, and the position of each value in epochs."""

    epochs: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class RunCurves:
    """The measurements of a run.

    Attributes:
        folder: folder of the run.
        curves: curve of each metric, by its key.
        resumed: positions of the resumes, in epochs.
        status: `metrics.SUCCESS` or `metrics.ABORTED`; None for a run that is running or was
            killed.
    """

    folder: Path
    curves: dict[str, Curve]
    resumed: tuple[float, ...]
    status: str | None

    def curve(self, key: str) -> Curve:
        """Return the curve of a metric, which is empty if the run has not measured the metric."""
        return self.curves.get(key, Curve())

    @property
    def epochs(self) -> float:
        """The position of the last measurement, in epochs; 0 without measurements."""
        return max((curve.epochs[-1] for curve in self.curves.values()), default=0.0)


def read(folder: Path) -> RunCurves:
    """Return the curves of the run in `folder`.

    Positions are in epochs, so that runs of different batch sizes are comparable. Epochs may have
    different numbers of steps.

    Raises:
        DataError: the folder has no metrics, or a line of the metrics is malformed.
    """
    path = folder / METRICS
    lines = _lines(path)
    try:
        epochs_at = _positions(lines)
        points: dict[str, list[tuple[float, float]]] = {}
        resumed: list[float] = []
        status: str | None = None
        for line in lines:
            key, value, about = line["key"], line["value"], line["metadata"]
            if key == metrics.RUN_STOP:
                status = about[metrics.STATUS]
            elif key == metrics.RESUMED:
                resumed.append(epochs_at(value))
                status = None
            elif "step" in about and isinstance(value, int | float):
                points.setdefault(key, []).append((epochs_at(about["step"]), value))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not in the form of the app contract ({error})", code="metrics-invalid"
        ) from error
    curves = {
        key: Curve(tuple(epoch for epoch, _ in found), tuple(value for _, value in found))
        for key, found in points.items()
    }
    return RunCurves(folder, curves, tuple(resumed), status)


def _lines(path: Path) -> list[metrics.Line]:
    try:
        return metrics.parse(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --out is the folder of a training", code="metrics-missing"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    except ValueError as error:
        raise DataError(f"{path}, {error}", code="metrics-invalid") from error


def _positions(lines: Sequence[metrics.Line]) -> Callable[[float], float]:
    """Return a function that converts a number of steps to a number of epochs."""
    began = [line["metadata"] for line in lines if line["key"] == metrics.EPOCH_START]
    if not began:  # killed before the first epoch: the number of steps in an epoch is unknown
        return float
    steps = [about["step"] for about in began] + [began[-1]["step"] + began[-1]["steps"]]
    epochs = [about["epoch_num"] - 1 for about in began] + [began[-1]["epoch_num"]]
    return lambda step: float(np.interp(step, steps, epochs))
