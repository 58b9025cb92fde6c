"""How a child ended, in words: signals by name, and whether memory ran out."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

_REASONS = {
    signal.SIGILL: (
        "an instruction that this CPU does not have",
        "its libraries are built for a newer CPU: `trimaran doctor` shows what this one can",
    ),
    signal.SIGBUS: (
        "a page of memory or of a mapped file could not be had",
        "a full /dev/shm or disk, or a data file that became shorter: see `df -h`, and"
        " `trimaran data verify`",
    ),
    signal.SIGSEGV: (
        "a fault in a library", "run it again; where it stays, report it with the log",
    ),
    signal.SIGABRT: (
        "a library gave up", "the log's last lines say why; NCCL ends so when a rank is lost",
    ),
    signal.SIGTERM: ("somebody else stopped it", "the batch system, at the end of its time?"),
}
_MORE_MEMORY = (
    "ask for more memory (Slurm: --mem), or make the batch smaller; `dmesg` or the batch system"
    " tells who was killed"
)


@dataclass(frozen=True)
class OomKills:
    """How many processes the kernel has killed because memory ran out; None: it does not tell.

    Attributes:
        cgroup: in the control group of this process: what a batch job or a container may use.
        machine: on the whole machine.
    """

    cgroup: int | None
    machine: int | None

    def since(self, before: OomKills) -> str | None:
        """Return what has happened since `before`, or None."""
        for place in ("cgroup", "machine"):
            now, then = getattr(self, place), getattr(before, place)
            if now is not None and then is not None and now > then:
                where = "this job's control group" if place == "cgroup" else "this machine"
                return f"meanwhile the kernel has killed {now - then} in {where} for lack of memory"
        return None


def oom_kills() -> OomKills:
    """Return the kernel's counters as they are now."""
    return OomKills(_cgroup_kills(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
                    _count(Path("/proc/vmstat")))


def describe(status: int, before: OomKills, after: OomKills) -> tuple[str, str] | None:
    """Return what ended a child with `status`, and a hint; None: it ended by itself.

    `status` is negative for a signal; container engines and launchers say 128 plus its number.
    """
    try:
        found = signal.Signals(-status if status < 0 else status - 128)
    except ValueError:
        return None
    if found == signal.SIGKILL:
        told = after.since(before)
        why = f"out of memory ({told})" if told else "most likely out of memory"
        return f"killed ({found.name}); {why}", _MORE_MEMORY
    why, hint = _REASONS.get(found, ("", ""))
    return f"ended by {found.name}" + (f": {why}" if why else ""), hint


def _cgroup_kills(own: Path, root: Path) -> int | None:
    """Return the counter of the control group that the file `own` names (versions 2 and 1)."""
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
    """Return the number after `oom_kill` in a file of counters."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
