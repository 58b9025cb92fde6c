"""Describe how a child process ended: the name of the signal, and whether memory was used up."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

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
    """Numbers of processes that the kernel has killed for lack of memory; None: not available.

    Attributes:
        cgroup: number in the control group of this process, which limits a batch job or container.
        machine: number on the whole machine.
    """

    cgroup: int | None
    machine: int | None

    def since(self, before: OomKills) -> str | None:
        """Return a sentence about the processes killed since `before`, or None."""
        for place in ("cgroup", "machine"):
            now, then = getattr(self, place), getattr(before, place)
            if now is not None and then is not None and now > then:
                where = "this job's control group" if place == "cgroup" else "this machine"
                return f"the kernel killed {now - then} in {where} for lack of memory"
        return None


def oom_kills() -> OomKills:
    """Return the current counters of the kernel."""
    return OomKills(_cgroup_kills(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
                    _count(Path("/proc/vmstat")))


def describe(status: int, before: OomKills, after: OomKills) -> tuple[str, str] | None:
    """Return which signal ended a child, and a hint; None: no signal ended it.

    Args:
        status: exit status: minus the number of the signal, or 128 plus it from a container
            engine or launcher.
        before: the counters before the child started.
        after: the counters now.
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
    """Return the counter of the control group (version 2 or 1) that the file `own` names."""
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
    """Return the number after `oom_kill` in a file of counters, or None."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
