"""The interface to a batch system: options of a job, start of its ranks, queue and job states.

`slurm`, `pbs` and `lsf` implement the interface. Commands that a running job needs are in
`functions.sh`, which distinguishes the batch systems by their names.
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
from trimaran.launch.specification import Text, Variable

if TYPE_CHECKING:
    from trimaran.recipes.recipe import Recipe
    from trimaran.site_file import Cluster

NODES, TASKS = Variable("nodes"), Variable("tasks")
"""Shell variables: numbers of nodes and tasks, which decrease if an elastic run loses a node."""

ANSWER_SECONDS = 20.0
"""Time limit for a command of a batch system, in seconds."""

NUMBER = r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z][A-Za-z0-9_.-]*)?"
"""Regular expression for a job number; PBS adds the server: `813`, `813.server`."""


@dataclass(frozen=True)
class State:
    """The state of a job as the batch system reports it.

    Attributes:
        name: name of the state, such as `PENDING`.
        reason: why the job is in this state; "None" if there is no reason.
        active: whether the job has not ended.
    """

    name: str
    reason: str
    active: bool = True


@dataclass(frozen=True)
class Shape:
    """The nodes, tasks and resources that a job requests.

    A task is one rank, or one launcher such as torchrun, which starts the ranks of its node inside
    the container.

    Attributes:
        nodes: number of nodes.
        tasks_per_node: tasks that the batch system starts on each node.
        cpus_per_task: cores of each task.
        gpus_per_node: GPUs of each node.
        walltime: time limit as HH:MM:SS.
        sockets: number of CPU sockets of a node, over which the tasks are spread; None: unknown.
        ranks_told: whether each task is a rank, which gets its rank and the world size from the
            program that starts it.
        mpirun: whether the mpirun of the host starts the tasks, instead of the batch system.
        restarts: whether the agents of torchrun continue after the loss of a node.
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
        """Return the shape of a job that runs `recipe` on nodes with this number of sockets."""
        wanted = recipe.resources
        mpirun = recipe.launcher == "mpirun" and wanted.nodes > 1
        ranks_told = recipe.launcher == "srun" or mpirun
        inside = 1 if ranks_told else wanted.tasks_per_node
        return cls(
            wanted.nodes, wanted.tasks_per_node // inside, wanted.cpus_per_task * inside,
            wanted.gpus_per_node, wanted.walltime, sockets, ranks_told, mpirun,
            restarts=recipe.launcher == "torchrun" and wanted.min_nodes is not None,
        )

    @property
    def tasks(self) -> int:
        """Number of tasks on all nodes."""
        return self.nodes * self.tasks_per_node

    @property
    def cpus_per_node(self) -> int:
        """Number of cores that the tasks of one node use."""
        return self.cpus_per_task * self.tasks_per_node


class Scheduler(ABC):
    """One kind of batch system.

    Attributes:
        name: name in the site file.
        programs: commands to queue a job, to print its state, to cancel it, and other commands.
        directive: prefix of the lines of the script that the batch system reads.
        number: environment variable of a job with its number.
        silent: whether the batch system sends no signal to a job before its time limit.
        reads: character sequences that the batch system replaces in the path of an output file,
            so the path of a run directory, which contains these files, must not contain them.
        queued: regular expressions for the output line with the number of a new job; the most
            specific expression comes first.
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
        """Return the options in the directive lines of the job's script.

        Args:
            name: name of the job.
            shape: resources of the job.
            cluster: the cluster in the site file.
            elastic: whether the job continues after the loss of a node.

        Raises:
            UsageError: the batch system does not support a setting.
        """

    @abstractmethod
    def ranks(self, shape: Shape, cluster: Cluster, nodes: Text, tasks: Text) -> tuple[Text, ...]:
        """Return the command that starts `tasks` tasks on `nodes` nodes.

        Both are numbers, or shell variables of the script.
        """

    @abstractmethod
    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return the command that starts one task on each of `nodes` nodes."""

    @abstractmethod
    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue a script, and return the job number.

        Args:
            script: path of the script, relative to `folder`.
            folder: working directory of the job.
            keep_open: file descriptors that the command inherits.

        Raises:
            RunError: the batch system refuses the job, does not answer in time, or prints no job
                number. In the last two cases it may have accepted the job.
        """

    @abstractmethod
    def named(self, name: str) -> list[str]:
        """Return the numbers of the user's jobs with this name that the batch system still lists.

        Raises:
            RunError: the batch system does not answer.
        """

    @abstractmethod
    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of the jobs that the batch system still lists, by number.

        Raises:
            RunError: the batch system does not answer.
        """

    def cancel(self, job: str) -> None:
        """Cancel a job: the batch system sends SIGTERM to its ranks, and kills them after a delay.

        The configuration of the batch system sets the delay (Slurm: KillWait, PBS: kill_delay).

        Raises:
            RunError: the batch system refuses the cancellation, or does not answer.
        """
        done = ask([self.programs[2], job])
        if done.returncode != 0:
            raise RunError(f"`{self.programs[2]} {job}` failed: {words(done)}",
                           code="scheduler-failed")

    def called(self, name: str) -> str:
        """Return a job name that the batch system accepts.

        Args:
            name: the desired name, of letters, digits and `/@.-`.
        """
        return name

    def early(self, cluster: Cluster) -> int:
        """Return how many seconds before its time limit a job gets a signal."""
        return cluster.signal_seconds

    def check(self) -> None:
        """Check that the commands of the batch system are on PATH.

        Raises:
            UsageError: a command is missing.
        """
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing:
            raise UsageError(
                f"{missing[0]} is not on PATH: no job can be submitted to {self.title} from this"
                " machine", code="scheduler-missing",
                hint=f"log in to the cluster's login node, or load the module of {self.title};"
                " --dry-run only prints the script",
            )

    @property
    def title(self) -> str:
        """The name of the batch system in messages."""
        return {"slurm": "Slurm", "pbs": "PBS", "lsf": "LSF"}[self.name]

    def folder(self) -> Path:
        """Return the folder that contains the batch system's commands on this machine.

        If the commands are not on PATH, return /usr/bin. A job script appends the folder to PATH.
        """
        return Path(shutil.which(self.programs[0]) or "/usr/bin/x").parent


def ask(argv: list[str], seconds: float | None = None) -> process.Result:
    """Run a command of a batch system, and return its result.

    Args:
        argv: the command.
        seconds: time limit; None: ANSWER_SECONDS.

    Raises:
        UsageError: the program is not on PATH.
        RunError: the command does not end within the time limit.
    """
    return process.ask(argv, ANSWER_SECONDS if seconds is None else seconds)


def words(done: process.Result) -> str:
    """Return the message of a failed command: its standard error, or else its standard output."""
    message = done.stderr.strip() or done.stdout.strip()
    return message or f"exit status {done.returncode}"


def queue(
    scheduler: Scheduler, argv: list[str], folder: Path, keep_open: Sequence[int], stdin: str = ""
) -> str:
    """Run `argv`, the command that queues a job, in `folder`, and return the job number.

    A regular expression finds the number, because at some sites the command prints further lines.

    Raises:
        RunError: as in `Scheduler.submit`.
    """
    # SBATCH_JOB_NAME would replace the name in the script, by which the job of a run is found.
    env = {name: value for name, value in os.environ.items() if name != "SBATCH_JOB_NAME"}
    done = process.ask(
        argv, ANSWER_SECONDS, env=env, cwd=folder, stdin=stdin, keep_open=keep_open
    )
    if done.returncode != 0:
        raise RunError(
            f"{argv[0]} refuses the job: {words(done)}", code="job-refused",
            hint="correct partition, account and constraint in the site file: `trimaran site show`",
        )
    for line in scheduler.queued:
        numbers = {match[1] for match in re.finditer(rf"^[ \t]*{line}[ \t]*$", done.stdout, re.M)}
        if len(numbers) == 1:
            return numbers.pop()
        if numbers:
            break  # ambiguous
    raise RunError(f"{argv[0]} printed no job number: {words(done)}", code="job-number-missing")


def called_so(text: str, name: str) -> list[str]:
    """Return the numbers of the jobs called `name`; `text` has lines of the form `NUMBER|NAME`."""
    return re.findall(rf"^({NUMBER})\|{re.escape(name)}$", text, re.M)


def host_mpirun(shape: Shape, tasks: Text) -> tuple[Text, ...]:
    """Return the mpirun command of the host's Open MPI, which gets the nodes from the batch system.

    mpirun binds no rank to cores: the ranks bind their threads (`trainkit.affinity`), or variables
    of the site file do this.
    """
    return (
        "mpirun", "-n", tasks, "--map-by", f"ppr:{shape.tasks_per_node}:node", "--bind-to", "none",
        "-x", "TRIMARAN_FIRST", "-x", "TRIMARAN_PORT",
        "--mca", "ess_base_forward_signals", "SIGURG",
    )
