"""Slurm: the commands, and the options of a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.cluster import scheduler
from trimaran.cluster.scheduler import Scheduler, Shape, State, host_mpirun
from trimaran.errors import RunError
from trimaran.launch.specification import Text, join

if TYPE_CHECKING:
    from trimaran.site_file import Cluster

ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED",
          "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
"""States of an active job (squeue(1), job state codes)."""


class Slurm(Scheduler):
    """The batch system Slurm (see `Scheduler`)."""

    name = "slurm"
    programs = ("sbatch", "squeue", "scancel", "srun")
    directive = "#SBATCH"
    number = "SLURM_JOB_ID"
    # sbatch replaces patterns such as %j in the whole path of --output, which begins with the run
    # directory. After a backslash it replaces nothing, not even %j (sbatch(1), filename pattern).
    reads = ("%", "\\")
    queued = (r"Submitted batch job ([0-9]+)(?: .*)?", r"([0-9]+)(?:;[A-Za-z0-9_.-]+)?")

    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return the options of the `#SBATCH` lines."""
        named = {"partition": cluster.partition, "account": cluster.account, "qos": cluster.qos,
                 "constraint": cluster.constraint}
        return [
            f"--job-name={name}", f"--nodes={shape.nodes}",
            f"--ntasks-per-node={shape.tasks_per_node}", f"--cpus-per-task={shape.cpus_per_task}",
            f"--time={shape.walltime}",
            *([f"--gres={cluster.gres}:{shape.gpus_per_node}"] if shape.gpus_per_node else []),
            *(f"--{key}={value}" for key, value in named.items() if value is not None),
            "--output=job/slurm-%j.txt", "--open-mode=append",
            f"--signal=B:USR1@{cluster.signal_seconds}", "--requeue", "--export=NONE",
            *(["--no-kill"] if elastic else []),
        ]

    def ranks(self, shape: Shape, cluster: Cluster, nodes: Text, tasks: Text) -> tuple[Text, ...]:
        """Return an srun command that binds the tasks of a node to different cores."""
        if shape.mpirun:
            return host_mpirun(shape, tasks)
        sockets = shape.sockets or 0
        spread = sockets and shape.tasks_per_node % sockets == 0
        # If an agent of torchrun is lost, the others continue and restart their ranks.
        end = ("--no-kill", "--kill-on-bad-exit=0", "--wait=0") if shape.restarts else (
            "--kill-on-bad-exit=1",
        )
        return (
            *self._srun(nodes, tasks, shape.tasks_per_node),
            f"--cpus-per-task={shape.cpus_per_task}",
            *([f"--ntasks-per-socket={shape.tasks_per_node // sockets}"] if spread else []),
            *(["--cpu-bind=cores"] if shape.tasks_per_node > 1 else []),
            *end, f"--mpi={cluster.mpi if shape.ranks_told else 'none'}",
        )

    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return an srun command with one task on each node."""
        return (*self._srun(nodes, nodes, 1), "--kill-on-bad-exit=1", "--mpi=none")

    @staticmethod
    def _srun(nodes: Text, tasks: Text, per_node: int) -> tuple[Text, ...]:
        # The script runs with --export=NONE; its tasks need the variables that it sets.
        return ("srun", "--export=ALL", join("--nodes=", nodes), join("--ntasks=", tasks),
                f"--ntasks-per-node={per_node}")

    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue `script`, and return the job number."""
        # The folder is an argument, because Slurm parses paths in #SBATCH lines by its own rules.
        words = ["sbatch", "--parsable", f"--chdir={folder}", str(script)]
        return scheduler.queue(self, words, folder, keep_open)

    def named(self, name: str) -> list[str]:
        """Return the numbers of the user's jobs with this name."""
        return scheduler.called_so(_squeue(f"--name={name}", "--format=%i|%j"), name)

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of the user's jobs that Slurm still lists."""
        rows = [line.split("|", 2) for line in _squeue("--format=%i|%T|%r").splitlines()]
        return {
            row[0]: State(row[1], row[2], active=row[1] in ACTIVE) for row in rows if len(row) == 3
        }


def architectures(nodes: str, partition: str | None, constraint: str | None = None) -> set[str]:
    """Return the processor architectures of nodes that can run a job, as `uname -m` prints them.

    Args:
        nodes: output of `scontrol --oneliner show node`. A node that never registered has no Arch.
        partition: partition of the job; None: any.
        constraint: features that the nodes must have; only names that are joined by `&` are used.
    """
    asked = set((constraint or "").split("&")) - {""}
    asked = asked if all(re.fullmatch(r"[\w.:-]+", one) for one in asked) else set()
    found = set()
    for line in nodes.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        features = set(fields.get("AvailableFeatures", "").split(","))
        partitions = fields.get("Partitions", "").split(",")
        if "Arch" in fields and partition in (None, *partitions) and asked <= features:
            found.add(fields["Arch"])
    return found


def _squeue(*words: str) -> str:
    done = scheduler.ask(["squeue", "--me", "--noheader", "--states=all", *words])
    if done.returncode != 0:
        raise RunError(f"squeue failed: {scheduler.words(done)}", code="scheduler-failed")
    return done.stdout
