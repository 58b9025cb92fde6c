"""Slurm's commands, as the user would type them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from trimaran import process
from trimaran.errors import RunError, UsageError

ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED",
          "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
"""States of a job that has not ended (squeue(1), job state codes)."""


@dataclass(frozen=True)
class State:
    """What the batch system says of a job: its state, and why it is in it."""

    name: str
    reason: str

    @property
    def active(self) -> bool:
        """Whether the job has not ended."""
        return self.name in ACTIVE


def folder() -> Path:
    """Return where Slurm's commands are here; where they are not, where most sites have them."""
    return Path(shutil.which("srun") or "/usr/bin/srun").parent


def check() -> None:
    """Raise UsageError where Slurm's commands are not."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"{missing[0]} is not on PATH: this machine gives no jobs to Slurm",
            hint="log in to the cluster's login node, or load its module; to look at the script"
            " only: --dry-run",
        )


def submit(script: Path, folder: Path) -> str:
    """Queue `script`, which works in `folder`; return the job's number.

    Raises:
        RunError: Slurm refuses it, in its own words.
    """
    # As arguments: a path in a line of the script would be read by Slurm's own rules.
    done = process.run(["sbatch", "--parsable", f"--chdir={folder}", str(script)], cwd=folder)
    if done.returncode != 0:
        raise RunError(
            f"sbatch refuses the job: {done.stderr.strip() or done.stdout.strip()}",
            hint="partition, account and constraint are in the site file (trimaran site show);"
            " `sinfo` shows what there is",
        )
    return done.stdout.strip().partition(";")[0]


def states() -> dict[str, State]:
    """Return the states of the user's jobs that Slurm still knows, by number.

    Raises:
        RunError: Slurm does not answer.
    """
    words = ["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r"]
    done = process.run(words, timeout=60, check=RunError)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return {row[0]: State(row[1], row[2]) for row in rows if len(row) == 3}


def cancel(job: str) -> None:
    """End a job: its ranks are told to stop, and killed after the cluster's KillWait."""
    process.run(["scancel", job], check=RunError)
