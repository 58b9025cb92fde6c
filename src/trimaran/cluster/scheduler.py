"""What a batch system is here: how a job asks for nodes, starts its ranks, and is queued and seen.

`slurm`, `pbs` and `lsf` have one each, and a template of shell functions for the script of
a job, `NAME.sh.j2`.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trimaran import process
from trimaran.errors import RunError, UsageError

if TYPE_CHECKING:
    from trimaran.recipes.recipe import Recipe
    from trimaran.sites import Cluster

NODES, TASKS = '"$nodes"', '"$tasks"'
"""What the words of a launcher have in the script: an elastic run has fewer of them later."""


@dataclass(frozen=True)
class State:
    """What the batch system says of a job: its state, and why it is in it."""

    name: str
    reason: str
    active: bool = True
    """Whether the job has not ended."""


@dataclass(frozen=True)
class Shape:
    """What a batch system starts: a container's own launcher starts the ranks of its one task.

    Attributes:
        tasks_per_node: tasks that the batch system starts on each node.
        sockets: of a node, over which its tasks are spread; None: nobody knows.
        ranks_told: whether each task is a rank, which whoever starts it tells of the others.
        mpirun: whether the host's mpirun starts the tasks, in place of the batch system.
        restarts: whether torchrun's agents go on without those of lost nodes.
    """

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    walltime: str
    sockets: int | None = None
    ranks_told: bool = False
    mpirun: bool = False
    restarts: bool = False

    @classmethod
    def of(cls, recipe: Recipe, sockets: int | None = None) -> Shape:
        """Return the shape of a recipe's job, on nodes of so many sockets."""
        wanted = recipe.resources
        mpirun = recipe.launcher == "mpirun" and wanted.nodes > 1
        told = recipe.launcher == "srun" or mpirun
        inside = 1 if told else wanted.tasks_per_node
        return cls(
            wanted.nodes, wanted.tasks_per_node // inside, wanted.cpus_per_task * inside,
            wanted.gpus_per_node, wanted.walltime, sockets, told, mpirun,
            restarts=recipe.launcher == "torchrun" and wanted.min_nodes is not None,
        )

    @property
    def tasks(self) -> int:
        """Tasks on all nodes."""
        return self.nodes * self.tasks_per_node

    @property
    def cpus_per_node(self) -> int:
        """Cores on each node."""
        return self.cpus_per_task * self.tasks_per_node


class Scheduler(ABC):
    """One kind of batch system.

    Attributes:
        name: as a site file has it.
        programs: its commands: to queue a job, to ask for its state, to end it, and others.
        directive: what a line of the script begins with that is for the batch system.
        number: the variable that has a job's number.
        silent: whether it says nothing to a job before its time limit.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    directive: ClassVar[str]
    number: ClassVar[str]
    silent: ClassVar[bool] = False

    @abstractmethod
    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return what the script tells the batch system: the recipe's resources, the site's names.

        Raises:
            UsageError: the site file has a key that this batch system has no word for.
        """

    @abstractmethod
    def ranks(self, shape: Shape, cluster: Cluster, nodes: str, tasks: str) -> tuple[str, ...]:
        """Return the words that start all tasks; `nodes` and `tasks` may be shell variables."""

    @abstractmethod
    def each_node(self, nodes: str) -> tuple[str, ...]:
        """Return the words that start one task on each node."""

    @abstractmethod
    def warn(self, shape: Shape) -> str:
        """Return the shell command that has all ranks write a checkpoint and stop (job.sh.j2)."""

    @abstractmethod
    def submit(self, script: Path, folder: Path) -> str:
        """Queue `script`, which works in `folder`; return the job's number.

        Raises:
            RunError: the batch system refuses it, in its own words.
        """

    @abstractmethod
    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of those of the jobs that the batch system still knows, by number.

        Raises:
            RunError: it does not answer.
        """

    def cancel(self, job: str) -> None:
        """End a job: its ranks are told to stop, and killed some seconds later.

        How many: KillWait of a cluster with Slurm, kill_delay of a queue of PBS.
        """
        process.run([self.programs[2], job], check=RunError)

    def early(self, cluster: Cluster) -> int:
        """Return how many seconds before its time limit a job is told of it."""
        return cluster.signal_seconds

    def check(self) -> None:
        """Raise UsageError where its commands are not."""
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing:
            raise UsageError(
                f"{missing[0]} is not on PATH: this machine gives no jobs to {self.title}",
                hint="log in to the cluster's login node, or load its module; to look at the"
                " script only: --dry-run",
            )

    @property
    def title(self) -> str:
        """Its name for people."""
        return {"slurm": "Slurm", "pbs": "PBS", "lsf": "LSF"}[self.name]

    def folder(self) -> Path:
        """Return where its commands are here; where they are not, where most sites have them."""
        return Path(shutil.which(self.programs[0]) or "/usr/bin/x").parent


def queued(argv: list[str], folder: Path, stdin: str | None = None) -> str:
    """Run the command that queues a job in `folder`, and return what it prints.

    Raises:
        RunError: the batch system refuses the job, in its own words.
    """
    done = process.run(argv, cwd=folder, stdin=stdin)
    if done.returncode != 0:
        raise RunError(
            f"{argv[0]} refuses the job: {done.stderr.strip() or done.stdout.strip()}",
            hint="partition, account and constraint are in the site file (trimaran site show)",
        )
    return done.stdout.strip()


WARN_MPIRUN = 'kill -URG "$child"'
"""How the host's mpirun has its ranks warned."""


def host_mpirun(shape: Shape, tasks: str) -> tuple[str, ...]:
    """Return the words of the host's Open MPI; the batch system tells it which nodes there are.

    Ranks place their own threads (`trainkit.affinity`), or the site's `env` does.
    """
    return (
        "mpirun", "-n", tasks, "--map-by", f"ppr:{shape.tasks_per_node}:node", "--bind-to", "none",
        "-x", "TRIMARAN_FIRST", "-x", "TRIMARAN_PORT",
        "--mca", "ess_base_forward_signals", "SIGURG",
    )
