"""What a batch system is here: how a job asks for nodes, starts its ranks, and is queued and seen.

`slurm`, `pbs` and `lsf` have one each. What a running job asks of them is in `functions.sh`, which
finds its way by the name of the batch system.
"""

from __future__ import annotations

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trimaran import process
from trimaran.errors import RunError, UsageError
from trimaran.launch.words import Text, Variable

if TYPE_CHECKING:
    from trimaran.recipes.recipe import Recipe
    from trimaran.site_file import Cluster

NODES, TASKS = Variable("nodes"), Variable("tasks")
"""The numbers of nodes and tasks in a script: an elastic run has fewer of them later."""

ANSWER_SECONDS = 20.0
"""How long a command of a batch system may take, before it is said that it does not answer."""

NUMBER = r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z][A-Za-z0-9_.-]*)?"
"""A job's number, of PBS with its server: `813`, `813.server`."""


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
        reads: what it does not take as it is in the path of a run directory, as its files of
            output are named there.
        queued: lines by which its command tells the number of a new job, the surest first.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    directive: ClassVar[str]
    number: ClassVar[str]
    silent: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]]
    queued: ClassVar[tuple[str, ...]]

    @abstractmethod
    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return what the script tells the batch system: the recipe's resources, the site's names.

        Raises:
            UsageError: the site file has a key that this batch system has no word for.
        """

    @abstractmethod
    def ranks(self, shape: Shape, cluster: Cluster, nodes: Text, tasks: Text) -> tuple[Text, ...]:
        """Return the words that start all tasks; `nodes` and `tasks` may be shell variables."""

    @abstractmethod
    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return the words that start one task on each node."""

    @abstractmethod
    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue `script`, which works in `folder`; return the job's number.

        Args:
            keep_open: descriptors that the command inherits.

        Raises:
            RunError: the batch system refuses it, in its own words, does not answer in time, or
                names no number. In the last two cases it may have taken the job.
        """

    @abstractmethod
    def named(self, name: str) -> list[str]:
        """Return the numbers of the user's jobs called `name` that it still knows.

        Raises:
            RunError: it does not answer.
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

        Raises:
            RunError: the batch system refuses, or does not answer.
        """
        done = ask([self.programs[2], job])
        if done.returncode != 0:
            raise RunError(f"{self.programs[2]} {job}: {words(done)}")

    def called(self, name: str) -> str:
        """Return what a job is called there, of a name with letters, digits and `/@.-`."""
        return name

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


def ask(argv: list[str], seconds: float | None = None) -> process.Result:
    """Return what a command of a batch system says.

    Raises:
        UsageError: it is not here.
        RunError: it does not answer within `seconds`, by default ANSWER_SECONDS.
    """
    return process.ask(argv, ANSWER_SECONDS if seconds is None else seconds)


def words(done: process.Result) -> str:
    """Return what a command that failed says of it."""
    said = done.stderr.strip() or done.stdout.strip()
    return said or f"it failed with status {done.returncode}"


def queue(
    scheduler: Scheduler, argv: list[str], folder: Path, keep_open: Sequence[int], stdin: str = ""
) -> str:
    """Run the command that queues a job in `folder`; return the job's number.

    The number is found by its form: sites have such commands say more, before it and after it.

    Raises:
        RunError: the batch system refuses the job, in its own words; or as `Scheduler.submit`.
    """
    # The script has the job's name, and a run is found by it; these would replace it.
    env = {name: value for name, value in os.environ.items() if name != "SBATCH_JOB_NAME"}
    done = process.ask(
        argv, ANSWER_SECONDS, env=env, cwd=folder, stdin=stdin, keep_open=keep_open
    )
    if done.returncode != 0:
        raise RunError(
            f"{argv[0]} refuses the job: {words(done)}",
            hint="partition, account and constraint are in the site file (trimaran site show)",
        )
    for line in scheduler.queued:
        found = {one[1] for one in re.finditer(rf"^[ \t]*{line}[ \t]*$", done.stdout, re.M)}
        if len(found) == 1:
            return found.pop()
        if found:
            break  # which of them it is only the batch system knows
    raise RunError(f"{argv[0]} names no job: {words(done)}")


def called_so(text: str, name: str) -> list[str]:
    """Return the numbers in the lines `NUMBER|NAME` of `text` that have this name."""
    return re.findall(rf"^({NUMBER})\|{re.escape(name)}$", text, re.M)


def host_mpirun(shape: Shape, tasks: Text) -> tuple[Text, ...]:
    """Return the words of the host's Open MPI; the batch system tells it which nodes there are.

    Ranks place their own threads (`trainkit.affinity`), or the site's `env` does.
    """
    return (
        "mpirun", "-n", tasks, "--map-by", f"ppr:{shape.tasks_per_node}:node", "--bind-to", "none",
        "-x", "TRIMARAN_FIRST", "-x", "TRIMARAN_PORT",
        "--mca", "ess_base_forward_signals", "SIGURG",
    )
