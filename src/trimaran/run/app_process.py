"""The app's command, executed in its run directory: what it says, how it ends."""

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

# Exit codes of the app contract (apps/README.md) that end a run without a result.
APP_ERRORS = {
    2: "the app refused its arguments",
    3: "bad data",
    4: "training diverged",
    69: "a rank was lost",
    70: "the ranks have different weights",
    _NOT_WRITTEN: "the checkpoint could not be written",
    STOPPED: "stopped early; the checkpoint is in the run directory",
}
_IN_VAIN = (2, 3, 4, 70)  # the same command would end in the same way


def perform(
    directory: Path, record: RunRecord, command: Command, lock: int, reporter: Reporter
) -> None:
    """Execute `command` in its run directory; `run.json` is whole at every moment.

    The app holds the `lock` of the directory (see `run_directory.alone`) and that of its image.

    Raises:
        RunError: the app ended with an error.
        Interrupted: stopped by the user.
    """
    again = "it goes on with: " + process.shell_line(["trimaran", "resume", str(directory)])
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
    except OSError as error:  # of its log
        _finish(directory, record, "failed", 1)
        raise RunError(
            f"{error.filename}: {refusal(error, directory)}",
            hint=f"free some space there, then {again}",
        ) from error
    except BaseException:
        _finish(directory, record, "failed", 1)
        raise
    _finish(directory, record, status_after(status), status)
    if status != 0:
        raise _failure(directory, status, before, again)


def _finish(directory: Path, record: RunRecord, status: Status, exit_status: int) -> None:
    """Complete `run.json`, whoever is impatient: it must not go on saying "running"."""
    with process.handling(signal.SIG_IGN):
        run_directory.finish(directory, record, status, exit_status)


def _failure(directory: Path, status: int, before: exit_diagnosis.OomKills, again: str) -> RunError:
    """Return what an exit status other than 0 means, and the way out."""
    after = exit_diagnosis.oom_kills()
    what, hint = exit_diagnosis.describe(status, before, after) or (
        APP_ERRORS.get(status, "the app failed"), ""
    )
    if not hint and (told := after.since(before)):  # a rank, whose launcher ended by itself
        what = f"{what}; {told}"
    if status == _NOT_WRITTEN:
        hint = f"free some space: {room(directory)}"
    hints = [hint, f"its output is in {directory / LOG}", again if status not in _IN_VAIN else ""]
    return RunError(f"{what} (exit status {status})", hint="; ".join(filter(None, hints)))
