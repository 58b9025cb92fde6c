"""Execute the command of an app in its run directory, and report how it ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from trimaran import locks, process
from trimaran.errors import Interrupted, RunError
from trimaran.files import refusal, room
from trimaran.launch.specification import Command
from trimaran.reporting import Reporter
from trimaran.run import run_directory
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
"""Exit statuses of errors that would occur again if the same command were repeated."""


def perform(
    directory: Path, record: RunRecord, command: Command, lock: int, reporter: Reporter,
    seconds: float | None = None,
) -> None:
    """Execute `command` in the run directory, and complete `run.json` after success or failure.

    The app inherits the descriptor `lock` of the directory's lock (see `run_directory.alone`), and
    the lock of its image. Both locks are held until the app ends, even if this process ends first.

    Raises:
        RunError: the app ended with an error, or has not ended within `seconds`.
        Interrupted: the user stopped the run.
    """
    again = "resume it with: " + process.shell_line(["trimaran", "resume", str(directory)])
    before = oom_kills()
    try:
        with locks.using(Path(record.image.reference), reporter) as image:
            status = process.stream(
                command.argv, "training", reporter, env=command.env, cwd=directory,
                log=directory / LOG, on_line=reporter.line, keep_open=[lock, *image],
                seconds=seconds,
            )
    except (Interrupted, KeyboardInterrupt):
        _finish(directory, record, 130, "interrupted")
        raise Interrupted(f"the run in {directory} was stopped", hint=again) from None
    except OSError as error:  # the log cannot be written
        _finish(directory, record, 1)
        raise RunError(
            f"{error.filename}: {refusal(error, directory)}", code="file-unwritable",
            hint=f"free some space there, then {again}",
        ) from error
    except BaseException:
        _finish(directory, record, 1)
        raise
    _finish(directory, record, status)
    if status != 0:
        raise _failure(directory, status, before, again)


def _finish(
    directory: Path, record: RunRecord, exit_status: int, status: Status | None = None
) -> None:
    """Complete `run.json` without interruption, because its status must not stay "running".

    The new status follows from `exit_status`, unless `status` is given.
    """
    with process.handling(signal.SIG_IGN):
        run_directory.finish(directory, record, status or status_after(exit_status), exit_status)


def _failure(directory: Path, status: int, before: OomKills, again: str) -> RunError:
    after = oom_kills()
    code, what = APP_ERRORS.get(status, ("app-failed", "the app failed"))
    hint = ""
    if by_signal := describe_kills(status, before, after):
        code, (what, hint) = "app-killed", by_signal
    if not hint and (kills := after.since(before)):  # a killed rank ends its launcher
        what = f"{what}; {kills}"
    if status == _NOT_WRITTEN:
        hint = f"free some space: {room(directory)}"
    hints = [hint, f"its output is in {directory / LOG}", again if status not in _FINAL else ""]
    return RunError(f"{what} (exit status {status})", code=code,
                    hint="; ".join(filter(None, hints)))


_REASONS = {
    signal.SIGILL: (
        "an instruction that this CPU does not have",
        "its libraries are built for a newer CPU: `trimaran doctor` shows the flags of this CPU",
    ),
    signal.SIGBUS: (
        "a page of memory or of a mapped file is missing",
        "is /dev/shm or a disk full, or did a data file become shorter? see `df -h` and"
        " `trimaran data verify`",
    ),
    signal.SIGSEGV: (
        "a fault in a library", "run it again; if it fails again, report it with the log",
    ),
    signal.SIGABRT: (
        "a library aborted", "see the last lines of the log; NCCL aborts when a rank is lost",
    ),
    signal.SIGTERM: ("another process stopped it", "was it the batch system, at the time limit?"),
}
_MORE_MEMORY = (
    "request more memory (Slurm: --mem), or reduce the batch; `dmesg` or the batch system"
    " shows which process was killed"
)


@dataclass(frozen=True)
class OomKills:
    """The numbers of processes that the kernel killed for lack of memory; None if unknown.

    Attributes:
        cgroup: killed processes in the control group of this process, by which a batch system or
            container engine limits the memory.
        machine: killed processes on the whole machine.
    """

    cgroup: int | None
    machine: int | None

    def since(self, before: OomKills) -> str | None:
        """Return a sentence about the processes killed for lack of memory since a count.

        `before` is that count. Return None if no process is known to have been killed since.
        """
        for place in ("cgroup", "machine"):
            now, then = getattr(self, place), getattr(before, place)
            if now is not None and then is not None and now > then:
                where = "this job's control group" if place == "cgroup" else "this machine"
                return f"the kernel killed {now - then} in {where} for lack of memory"
        return None


def oom_kills() -> OomKills:
    """Count the processes that the kernel has killed so far for lack of memory."""
    return OomKills(_cgroup_kills(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
                    _count(Path("/proc/vmstat")))


def describe_kills(status: int, before: OomKills, after: OomKills) -> tuple[str, str] | None:
    """Return the signal that ended a child process, and a hint, or None if no signal ended it.

    Args:
        status: the negative number of the signal, or 128 plus the number if a container engine or
            launcher reports it.
        before: counts of the processes that the kernel had killed for lack of memory when the child
            process started.
        after: the same counts now.
    """
    try:
        found = signal.Signals(-status if status < 0 else status - 128)
    except ValueError:
        return None
    if found == signal.SIGKILL:
        kills = after.since(before)
        why = f"out of memory ({kills})" if kills else "most likely out of memory"
        return f"killed ({found.name}); {why}", _MORE_MEMORY
    why, hint = _REASONS.get(found, ("", ""))
    return f"ended by {found.name}" + (f": {why}" if why else ""), hint


def _cgroup_kills(own: Path, root: Path) -> int | None:
    """Return the number of killed processes in the control group that the file `own` names.

    Args:
        own: file with the name of the control group.
        root: folder with the files of all control groups (version 2 or 1).
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, below = line.split(":", 2)
        place = below.lstrip("/")
        if controllers == "":
            found = _count(root / place / "memory.events")
        elif "memory" in controllers.split(","):
            found = _count(root / "memory" / place / "memory.oom_control")
        else:
            continue
        if found is not None:
            return found
    return None


def _count(path: Path) -> int | None:
    """Return the counter `oom_kill` in a file of kernel counters, or None."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
