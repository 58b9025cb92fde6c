"""The curves of a run, read back from its `metrics.jsonl`, also while the run is going on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainkit import metrics
from trainkit.exits import DataError
from trainkit.outputs import METRICS


@dataclass(frozen=True)
class Curve:
    """One metric over a run: equally many positions (epochs done, in order) and values."""

    epochs: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class RunCurves:
    """What a run measured.

    Attributes:
        folder: the run.
        curves: by the key of the metric.
        resumed: where the run was continued, in epochs.
        status: `metrics.SUCCESS` or `metrics.ABORTED`; None for a run that is going on,
            or was killed.
    """

    folder: Path
    curves: dict[str, Curve]
    resumed: tuple[float, ...]
    status: str | None

    def curve(self, key: str) -> Curve:
        """Return the curve of a metric, empty if the run has not measured it."""
        return self.curves.get(key, Curve())

    @property
    def epochs(self) -> float:
        """Return how far the run has come, in epochs; 0 before its first measurement."""
        return max((curve.epochs[-1] for curve in self.curves.values()), default=0.0)


def read(folder: Path) -> RunCurves:
    """Return the curves of the run in `folder`.

    A position is `step` / (steps per epoch), the latter from `train_samples` and
    `global_batch_size`, so that runs of different batch sizes compare.

    Raises:
        DataError: the folder has no metrics, or a line of them is malformed.
    """
    path = folder / METRICS
    lines = _lines(path)
    try:
        steps = _steps_per_epoch(lines)
        points: dict[str, list[tuple[float, float]]] = {}
        resumed: list[float] = []
        status: str | None = None
        for line in lines:
            key, value, about = line["key"], line["value"], line["metadata"]
            if key == metrics.RUN_STOP:
                status = about[metrics.STATUS]
            elif key == metrics.RESUMED:
                resumed.append(value / steps)
                status = None
            elif "step" in about and isinstance(value, int | float):
                points.setdefault(key, []).append((about["step"] / steps, value))
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise DataError(f"{path} is not in the form of the app contract ({error})") from error
    curves = {
        key: Curve(tuple(epoch for epoch, _ in found), tuple(value for _, value in found))
        for key, found in points.items()
    }
    return RunCurves(folder, curves, tuple(resumed), status)


def _lines(path: Path) -> list[metrics.Line]:
    try:
        return metrics.parse(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; --out is the folder of a training") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path}, {error}") from error


def _steps_per_epoch(lines: Sequence[metrics.Line]) -> int:
    """Return the updates of an epoch; the last one may be of a smaller batch."""
    known = {line["key"]: line["value"] for line in lines}
    if metrics.TRAIN_SAMPLES not in known:  # killed before it said; it has no points either
        return 1
    return -int(-known[metrics.TRAIN_SAMPLES] // known[metrics.GLOBAL_BATCH_SIZE])
