"""The `--out` folder of a run: new, continued, or refused; never overwritten.

    metrics.jsonl  checkpoints/step-NNNNNNNN.pt  environment.json  result.json (when finished)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit import atomic, checkpoint, metrics, provenance
from trainkit.checkpoint import Checkpoints, State
from trainkit.engine import Engine
from trainkit.exits import ArgumentError

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
ENVIRONMENT = "environment.json"
RESULT = "result.json"


@dataclass(frozen=True)
class Outputs:
    """What a training writes to, and where it goes on from.

    Attributes:
        folder: the `--out` folder.
        checkpoints: its checkpoints.
        log: its `metrics.jsonl`, cut back to the checkpoint.
        state: the checkpoint to go on from, None for a new run.
        is_main: whether this rank writes.
    """

    folder: Path
    checkpoints: Checkpoints
    log: metrics.MetricsLog
    state: State | None
    is_main: bool

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`, which marks the run as finished."""
        if self.is_main:
            atomic.write_json(self.folder / RESULT, dict(result))


def is_finished(folder: Path, resume: str) -> bool:
    """Return whether `folder` has a finished run that `--resume auto` has nothing to add to.

    Raises:
        ArgumentError: it has a run, finished or not, and a new one was asked for.
    """
    used = [name for name in (RESULT, METRICS, CHECKPOINTS) if (folder / name).exists()]
    own = resume == "auto" or Path(resume).resolve().parent == (folder / CHECKPOINTS).resolve()
    if used and not own:
        raise ArgumentError(
            f"{folder} already has a run ({', '.join(used)}), which is never overwritten; "
            "choose another --out, or continue it with --resume auto"
        )
    return (folder / RESULT).exists()


def open_outputs(
    folder: Path,
    resume: str,
    identity: Mapping[str, Any],
    *,
    engine: Engine,
    keep: int,
    packages: Sequence[str],
    warn: Callable[[str], None],
) -> Outputs:
    """Return the outputs in `folder` for a new run, or for going on with one.

    Rank 0 alone reads and writes the folder; all ranks get the same state. A state tells
    its `step`, the `identity` of its training, and as `metrics_offset` the bytes of the
    metrics until then.

    Args:
        folder: made if missing.
        resume: "never", "auto" (the newest checkpoint, if any), or a checkpoint file.
        identity: every argument that changes the weights; a checkpoint made with
            others is refused, because going on from it would be a different training.
        engine: this rank and the others.
        keep: checkpoints to keep.
        packages: whose versions go to `environment.json`.
        warn: told about damaged checkpoints.
    """
    checkpoints = Checkpoints(folder / CHECKPOINTS, keep)
    state = None
    if engine.is_main:
        _begin(folder, provenance.environment(packages, engine))
        if resume == "auto":
            state = checkpoints.load_newest(warn)
        elif resume != "never":
            state = checkpoint.load(Path(resume))
        if state is not None:
            _same_training(state["identity"], identity)
            checkpoints.abandon(state["step"], warn)
    state = engine.share(state)
    offset = 0 if state is None else state["metrics_offset"]
    log = metrics.MetricsLog(folder / METRICS if engine.is_main else None, offset)
    return Outputs(folder, checkpoints, log, state, engine.is_main)


def _begin(folder: Path, environment: Mapping[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_json(folder / ENVIRONMENT, dict(environment))
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise ArgumentError(f"--out {folder} cannot be written to: {error.strerror}") from error


def _same_training(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differences = [
        f"{key}: {then.get(key)} then, {now.get(key)} now"
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
    ]
    if differences:
        raise ArgumentError(
            "the checkpoint belongs to a training with other settings "
            f"({'; '.join(differences)}); repeat its settings or choose another --out"
        )
