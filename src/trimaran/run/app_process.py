"""Execute the command of the app in its run directory, and report how it ended."""

from __future__ import annotations

import signal
from pathlib import Path

from trimaran import locks, process
from trimaran.errors import Interrupted, RunError
from trimaran.files import refusal, room
from trimaran.launch.specification import Command
from trimaran.reporting import Reporter
from trimaran.run import exit_diagnosis, run_directory
from trimaran.run.record import STOPPED, RunRecord, Status, status_after

LOG = "log.txt"

_NOT_WRITTEN = 74

APP_ERRORS = {
    2: ("app-refused-arguments", "the app refused its arguments"),
    3: ("app-data-invalid", "the app refused its data"),
    4: ("app-diverged", "the training diverged"),
    69: ("app-rank-lost", "a rank was lost"),
    70: ("app-ranks-differ", "the ranks have different weights"),
    _NOT_WRITTEN: ("file-unwritable", "the checkpoint could not be written"),
    STOPPED: ("app-stopped", "the training stopped early; its checkpoint is in the run directory"),
}
"""Exit status of the app contract (apps/README.md) -> code and message of the error."""

_FINAL = (2, 3, 4, 70)
"""Exit statuses that the same command would give again."""


def perform(
    directory: Path, record: RunRecord, command: Command, lock: int, reporter: Reporter
) -> None:
    """Execute `command` in its run directory; `run.json` is complete at every moment.

    The process of the app inherits the `lock` of the directory (see `run_directory.alone`) and that
    of its image.

    Raises:
        RunError: the app ended with an error.
        Interrupted: the user stopped the run.
    """
    again = "resume it with: " + process.shell_line(["trimaran", "resume", str(directory)])
    before = exit_diagnosis.oom_kills()
    try:
        with locks.using(Path(record.image.reference), reporter) as image:
            status = process.stream(
                command.argv, "training", reporter, env=command.env, cwd=directory,
                log=directory / LOG, on_line=reporter.line, keep_open=[lock, *image],
            )
    except (Interrupted, KeyboardInterrupt):
        _finish(directory, record, "interrupted", 130)
        raise Interrupted(f"the run in {directory} was stopped", hint=again) from None
    except OSError as error:  # the log cannot be written
        _finish(directory, record, "failed", 1)
        raise RunError(
            f"{error.filename}: {refusal(error, directory)}", code="file-unwritable",
            hint=f"free some space there, then {again}",
        ) from error
    except BaseException:
        _finish(directory, record, "failed", 1)
        raise
    _finish(directory, record, status_after(status), status)
    if status != 0:
        raise _failure(directory, status, before, again)


def _finish(directory: Path, record: RunRecord, status: Status, exit_status: int) -> None:
    """Complete `run.json`, without being interrupted: its status must not stay "running"."""
    with process.handling(signal.SIG_IGN):
        run_directory.finish(directory, record, status, exit_status)


def _failure(directory: Path, status: int, before: exit_diagnosis.OomKills, again: str) -> RunError:
    """Return the error for an exit status other than 0."""
    after = exit_diagnosis.oom_kills()
    code, what = APP_ERRORS.get(status, ("app-failed", "the app failed"))
    hint = ""
    if by_signal := exit_diagnosis.describe(status, before, after):
        code, (what, hint) = "app-killed", by_signal
    if not hint and (kills := after.since(before)):  # a rank was killed, and its launcher ended
        what = f"{what}; {kills}"
    if status == _NOT_WRITTEN:
        hint = f"free some space: {room(directory)}"
    hints = [hint, f"its output is in {directory / LOG}", again if status not in _FINAL else ""]
    return RunError(f"{what} (exit status {status})", code=code,
                    hint="; ".join(filter(None, hints)))
