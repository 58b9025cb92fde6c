"""The app's command, executed in its run directory: what it says, how it ends."""

from __future__ import annotations

from pathlib import Path

from trimaran import process, runs
from trimaran.engines import Command
from trimaran.errors import Interrupted, RunError
from trimaran.reporting import Reporter
from trimaran.runs import RunRecord

LOG = "log.txt"

# Exit codes of the app contract (apps/README.md) that end a run without a result.
_APP_ERRORS = {
    2: "the app refused its arguments",
    3: "bad data",
    4: "training diverged",
    69: "a rank was lost",
    70: "the ranks have different weights",
    74: "the checkpoint could not be written",
    75: "stopped early; the checkpoint is in the run directory",
}
_IN_VAIN = (2, 3, 4, 70)  # the same command would end in the same way


def perform(
    directory: Path, record: RunRecord, command: Command, lock: int, reporter: Reporter
) -> None:
    """Execute `command` in its run directory; `run.json` is whole at every moment.

    Args:
        directory: the run directory, whose `lock` (see `runs.alone`) the app holds, too.
        record: what `run.json` says so far.
        command: the exact command.
        lock: descriptor of the lock.
        reporter: shows the app's output.

    Raises:
        RunError: the app ended with an error.
        Interrupted: stopped by the user.
    """
    again = "it goes on with: " + process.shell_line(["trimaran", "resume", str(directory)])
    try:
        status = process.stream(
            command.argv, env=command.env, cwd=directory, log=directory / LOG,
            on_line=reporter.line, keep_open=[lock],
        )
    except Interrupted as stopped:
        runs.finish(directory, record, "interrupted", 130)
        raise Interrupted(stopped.message, hint=again) from None
    except BaseException:
        runs.finish(directory, record, "failed", 1)
        raise
    runs.finish(directory, record, _status(status), status)
    if status != 0:
        what = _APP_ERRORS.get(status, "the app failed")
        hint = f"its output is in {directory / LOG}"
        if status not in _IN_VAIN:
            hint += f"; {again}"
        raise RunError(f"{what} (exit status {status})", hint=hint)


def _status(exit_status: int) -> runs.Status:
    if exit_status == 0:
        return "completed"
    return "interrupted" if exit_status == 75 else "failed"
