"""The `--out` folder of a run: a run is started or resumed in it, but never overwritten.

    metrics.jsonl  checkpoints/step-NNNNNNNN.npz  environment.json  result.json (when finished)
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit import atomic, checkpoint, metrics, provenance
from trainkit.checkpoint import Checkpoints, State
from trainkit.energy import Energy, open_meters
from trainkit.exits import FULL, ArgumentError, DataError
from trainkit.strategy import Strategy

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
ENVIRONMENT = "environment.json"
RESULT = "result.json"


@dataclass(frozen=True)
class Outputs:
    """The output files of a training, and the checkpoint from which it resumes.

    Attributes:
        folder: the `--out` folder.
        checkpoints: checkpoints of the run.
        log: `metrics.jsonl` of the run, truncated to its size at the checkpoint.
        state: the checkpoint from which the training resumes, or None for a new run.
        is_main: whether this rank writes the files.
        identity: the settings that affect the weights, which each checkpoint records.
        energy: the energy meters of the job.
    """

    folder: Path
    checkpoints: Checkpoints
    log: metrics.MetricsLog
    state: State | None
    is_main: bool
    identity: Mapping[str, Any]
    energy: Energy

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write `result.json`, which marks the run as finished."""
        if self.is_main:
            atomic.write_json(self.folder / RESULT, dict(result))


def is_finished(folder: Path, resume: str, warn: Callable[[str], None]) -> bool:
    """Return whether `folder` has a finished run, which `--resume auto` leaves unchanged.

    Args:
        folder: the `--out` folder.
        resume: "never", "auto" or a checkpoint file.
        warn: function that reports a `result.json` that contradicts the rest of the run.

    Raises:
        ArgumentError: the folder has a run, and a new run was requested.
    """
    _refuse_used(folder, resume)
    doubt = _doubt(folder)
    if doubt:
        warn(f"{folder / RESULT} is not the end of this run ({doubt}), which resumes")
    return (folder / RESULT).exists() and doubt is None


def start_new(folder: Path, environment: Mapping[str, Any]) -> metrics.MetricsLog:
    """Start a run that writes no checkpoints, and return its metrics log in `folder`.

    Call this function on rank 0 only.

    Args:
        folder: the `--out` folder; created if missing.
        environment: content of `environment.json`.

    Raises:
        ArgumentError: the folder is not writable, has a run, or another process writes to it.
    """
    _refuse_used(folder, None)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(_take(folder))
        _prepare(folder, None, environment)
        stack.pop_all()  # the caller closes the log
    return log


def _refuse_used(folder: Path, resume: str | None) -> None:
    """Raise ArgumentError if `folder` has a run that `resume` does not continue.

    `resume` is None if the command cannot resume a run.
    """
    used = [name for name in (RESULT, METRICS, CHECKPOINTS) if _has(folder / name)]
    if used and resume != "auto" and not (resume and _is_own(folder, resume)):
        way_out = "" if resume is None else ", or continue it with --resume auto"
        raise ArgumentError(
            f"{folder} already has a run ({', '.join(used)}), which is never overwritten; "
            f"choose another --out{way_out}",
            code="run-not-empty",
        )


def _has(path: Path) -> bool:
    """Return whether `path` exists; an empty `metrics.jsonl` counts as missing."""
    return os.path.lexists(path) and (path.name != METRICS or path.lstat().st_size > 0)


def _is_own(folder: Path, resume: str) -> bool:
    """Return whether `resume` is a checkpoint of the run in `folder`."""
    return Path(resume).resolve().parent == (folder / CHECKPOINTS).resolve()


def _doubt(folder: Path) -> str | None:
    """Return how `result.json` contradicts the run, or None if it agrees or does not exist.

    A `result.json` marks a finished run only if it agrees with the last line of the metrics and
    with the newest checkpoint.
    """
    path = folder / RESULT
    try:
        result = json.loads(path.read_bytes())
        lines = metrics.parse((folder / METRICS).read_bytes())
    except FileNotFoundError as error:
        return f"{error.filename} does not exist" if os.path.lexists(path) else None
    except (OSError, ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(result, dict) or result.get(metrics.STATUS) != metrics.SUCCESS:
        return "it does not record a success"
    ends = [line["metadata"] for line in lines[-1:] if line["key"] == metrics.RUN_STOP]
    if [end.get(metrics.STATUS) for end in ends] != [metrics.SUCCESS]:
        return f"{METRICS} does not end with the end of a training"
    newest = Checkpoints(folder / CHECKPOINTS).files()[-1:]
    steps = [result.get("steps"), ends[0].get("step"), *map(checkpoint.step_of, newest)]
    if steps.count(steps[-1]) != len(steps):
        said = ", ".join(map(str, steps))
        return f"it, {METRICS} and the newest checkpoint end after {said} steps"
    return None


def open_outputs(
    folder: Path,
    resume: str,
    identity: Mapping[str, Any],
    *,
    strategy: Strategy,
    keep: int,
    packages: Sequence[str],
    warn: Callable[[str], None],
) -> Outputs:
    """Return the outputs in `folder` for a new or a resumed run.

    Rank 0 alone reads and writes the folder; all ranks get the same state. A state contains its
    `step`, the `identity` of its training, and `metrics_offset`, the size of the metrics in bytes
    when the checkpoint was written.

    Args:
        folder: the `--out` folder; created if missing.
        resume: "never", "auto" (the newest checkpoint, if any), or a checkpoint file.
        identity: every setting that affects the weights; a checkpoint with another identity is
            refused, because it belongs to a different training.
        strategy: the strategy that connects the ranks.
        keep: number of checkpoints to keep.
        packages: packages whose versions `environment.json` records.
        warn: function that reports damaged checkpoints.

    Raises:
        ArgumentError: the folder is not writable, has a run that must not be continued with these
            arguments, or another process trains in it.
        DataError: no checkpoint can be used.
    """
    checkpoints = Checkpoints(folder / CHECKPOINTS, keep, strategy)
    energy = open_meters(strategy)
    with contextlib.ExitStack() as stack:
        log, state = metrics.MetricsLog(None), None
        if strategy.is_main:
            log = stack.enter_context(_take(folder))
            environment = provenance.environment(packages, strategy)
            _prepare(folder, resume, {**environment, "energy": energy.facts()})
            state = _find_state(checkpoints, resume, log, warn)
            if state is not None:
                _same_training(state["identity"], identity)
                checkpoints.abandon(state["step"], warn)
            log.cut(0 if state is None else state["metrics_offset"])
        stack.pop_all()  # the caller closes the log
    return Outputs(
        folder, checkpoints, log, strategy.share(state), strategy.is_main, dict(identity),
        energy,
    )


def _take(folder: Path) -> metrics.MetricsLog:
    """Open the metrics log in `folder`, lock it for this process, and return it."""
    with _refusal(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return metrics.MetricsLog(folder / METRICS)


def _prepare(folder: Path, resume: str | None, environment: Mapping[str, Any]) -> None:
    _refuse_used(folder, resume)  # another process may have finished in the meantime
    own_folder(folder / CHECKPOINTS)
    with _refusal(folder):
        if _doubt(folder):
            (folder / RESULT).replace(folder / f"{RESULT}.corrupt")
        atomic.write_json(folder / ENVIRONMENT, dict(environment))


@contextlib.contextmanager
def _refusal(folder: Path) -> Iterator[None]:
    """Convert an OSError in the `with` block, which writes to `folder`, to an ArgumentError."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        raise ArgumentError(
            f"--out {folder} cannot be written to: {error.strerror}", code="file-unwritable"
        ) from error


def own_folder(path: Path) -> Path:
    """Check that `path`, a folder in `--out`, is not a symbolic link, and return `path`.

    The folder need not exist; the first write to it creates it.

    Raises:
        ArgumentError: the path is a symbolic link; a run never writes outside its folder.
    """
    if path.is_symlink():
        raise ArgumentError(
            f"{path} is a link, which a run does not follow; remove it, or let --out itself be "
            "where there is space",
            code="file-not-plain",
        )
    return path


def _find_state(
    checkpoints: Checkpoints, resume: str, log: metrics.MetricsLog, warn: Callable[[str], None]
) -> State | None:
    """Return the state from which the training resumes, or None for a new run."""
    folder, content = checkpoints.folder.parent, log.content()

    def fits(path: Path, state: State) -> None:
        kinds = {"step": int, "identity": dict, "metrics_offset": int}
        if not all(isinstance(state.get(key), kind) for key, kind in kinds.items()):
            raise DataError(f"checkpoint {path} has no state of a training, only other content",
                            code="checkpoint-mismatch")
        if path.resolve().parent != checkpoints.folder.resolve():
            return  # a checkpoint of another run, whose metrics stay in its folder
        _check_metrics(folder / METRICS, content, path, state["metrics_offset"])

    if resume == "never":
        return None
    if resume == "auto":
        return checkpoints.load_newest(warn, fits)
    state = checkpoint.load(Path(resume))
    fits(Path(resume), state)
    return state


def _check_metrics(path: Path, content: bytes, saved: Path, offset: int) -> None:
    """Raise DataError unless the first `offset` bytes of the metrics are complete, valid lines.

    The file `path` had `offset` bytes when the checkpoint `saved` was written; `content` is the
    current content of the file. The check precedes the training, which could otherwise end with
    unreadable metrics.
    """
    way_out = "restore it from a copy, resume from an earlier checkpoint, or use another --out"
    if len(content) < offset:
        raise DataError(
            f"{path} has {len(content)} bytes, and had {offset} when {saved.name} was written: "
            f"{way_out}",
            code="run-damaged",
        )
    try:
        metrics.parse(content[:offset])
    except ValueError as error:
        raise DataError(f"{path}, {error}: {way_out}", code="run-damaged") from error
    if offset and content[offset - 1 : offset] != b"\n":
        raise DataError(
            f"{path} has no line that ends where {saved.name} was written: {way_out}",
            code="run-damaged",
        )


def _same_training(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differences = [
        f"{key}: {then.get(key)} then, {now.get(key)} now"
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
    ]
    if differences:
        raise ArgumentError(
            "the checkpoint belongs to a training with other settings "
            f"({'; '.join(differences)}); repeat its settings or choose another --out",
            code="run-changed",
        )


def load_trained(out: Path | None, file: Path | None) -> State:
    """Return the checkpoint `file`, or the newest usable checkpoint of the run in `out`.

    The state has the entries `about`, which describes the network, and `parts`, the state of the
    training. Damaged checkpoints are skipped, but not renamed.

    Raises:
        ArgumentError: neither `out` nor `file` is given.
        DataError: the run has no checkpoint, or the checkpoint belongs to another app.
    """

    def warn(text: str) -> None:
        print(text, file=sys.stderr)

    def fits(path: Path, state: State) -> None:
        if not {"about", "parts"} <= state.keys():
            raise DataError(
                f"checkpoint {path} is not of this app: it does not describe a network",
                code="checkpoint-mismatch",
            )

    if file is not None:
        state = checkpoint.load(file)
        fits(file, state)
        return state
    if out is None:
        raise ArgumentError("use --out DIR or --checkpoint FILE", code="argument-missing")
    folder = out / CHECKPOINTS
    newest = Checkpoints(folder).load_newest(warn, fits, set_aside=False)
    if newest is None:
        raise DataError(
            f"{folder} has no checkpoint; --out is the folder of a training",
            code="checkpoint-missing",
        )
    return newest
