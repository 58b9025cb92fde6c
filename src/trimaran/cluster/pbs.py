"""PBS Professional and OpenPBS: the commands, and the options of a job.

The host's Open MPI starts the tasks, and reads the nodes of the job from PBS_NODEFILE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.cluster import scheduler
from trimaran.cluster.scheduler import (
    NUMBER,
    Scheduler,
    Shape,
    State,
    host_mpirun,
)
from trimaran.errors import RunError, UsageError
from trimaran.launch.specification import Text
from trimaran.parsing import Malformed, parse_json

if TYPE_CHECKING:
    from trimaran.site_file import Cluster

STATES = {"Q": "PENDING", "H": "PENDING", "W": "PENDING", "T": "PENDING", "M": "PENDING",
          "R": "RUNNING", "S": "SUSPENDED", "U": "SUSPENDED", "E": "COMPLETING", "B": "RUNNING"}
"""State letter of an active job in qstat(1B) -> name that Trimaran shows.

F and X are the states of a job that has ended.
"""

_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"
"""Characters that qsub rejects in the name of a job (some versions accept a full stop)."""

_HEADING = rf'(?:^Job Id: *|[{{,]\s*")(?P<job>{NUMBER})(?: *$|"\s*:\s*\{{)'
_KEY = r'(?:^ *|[{,]\s*")(?P<key>job_state|Exit_status|comment)"? *[:=] *"?(?P<value>[^\n"]*)'
_FACT = re.compile(f"{_HEADING}|{_KEY}", re.M)
"""Matches the heading or one attribute of a job in the output of qstat, as text or JSON.

The attributes are state, exit status and comment.
"""

_UNKNOWN = re.compile(r"Unknown Job|has finished", re.I)
"""Matches the messages of qstat about a job that it does not list."""


class Pbs(Scheduler):
    """The batch systems PBS Professional and OpenPBS (see `Scheduler`)."""

    name = "pbs"
    programs = ("qsub", "qstat", "qdel")
    directive = "#PBS"
    number = "PBS_JOBID"
    silent = True
    reads = ("^array_index^",)  # patterns of -o (qsub(1B))
    queued = (r"([0-9]+(?:\[[0-9]*\])?\.[A-Za-z][A-Za-z0-9_.-]*)", f"({NUMBER})")

    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return the options of the `#PBS` lines."""
        if elastic:
            raise UsageError("min_nodes: a job of PBS cannot continue after the loss of a node",
                             code="scheduler-unsupported",
                             hint="leave min_nodes out of the recipe, or use a cluster with Slurm")
        if cluster.qos is not None:
            raise UsageError("qos: PBS has no quality of service", code="scheduler-unsupported",
                             hint="remove qos from the cluster in the site file; to choose a queue,"
                             " set partition")
        chunk = [f"{shape.nodes}", f"ncpus={shape.cpus_per_node}",
                 f"mpiprocs={shape.tasks_per_node}",
                 *([f"ngpus={shape.gpus_per_node}"] if shape.gpus_per_node else []),
                 *([cluster.constraint] if cluster.constraint else [])]
        return [
            f"-N {self.called(name)}",
            f"-l select={':'.join(chunk)}", "-l place=scatter", f"-l walltime={shape.walltime}",
            *([f"-q {cluster.partition}"] if cluster.partition else []),
            *([f"-A {cluster.account}"] if cluster.account else []),
            "-j oe", "-o job/", "-r y",
        ]

    def ranks(self, shape: Shape, cluster: Cluster, nodes: Text, tasks: Text) -> tuple[Text, ...]:
        """Return the command that starts all tasks with the host's mpirun."""
        return host_mpirun(shape, tasks)

    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return the command that starts one task on each node with the host's mpirun."""
        return ("mpirun", "-n", nodes, "--map-by", "ppr:1:node", "--bind-to", "none")

    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue `script`, and return the job number."""
        return scheduler.queue(self, ["qsub", str(script)], folder, keep_open)

    def called(self, name: str) -> str:
        """Return the name with `-` in place of the characters that qsub rejects."""
        return re.sub(_NOT_IN_NAMES, "-", name)

    def named(self, name: str) -> list[str]:
        """Return the numbers of the jobs with this name."""
        done = scheduler.ask(["qselect", "-x", "-N", name])
        if done.returncode != 0:
            raise RunError(f"qselect failed: {scheduler.words(done)}", code="scheduler-failed")
        return re.findall(rf"^({NUMBER})$", done.stdout, re.M)

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of the jobs that PBS still lists.

        The JSON of qstat is invalid if a value has a leading zero, a tab or a quote, or if a key
        occurs twice. Any variable of a job can cause this; the text output is parsed instead.
        """
        # If one of the jobs is unknown, qstat prints the other jobs and exits with 35.
        done = scheduler.ask(["qstat", "-x", "-f", "-F", "json", *numbers])
        try:
            # If all jobs are unknown, the JSON has no "Jobs".
            none: object = {} if _UNKNOWN.search(done.stderr) else None
            jobs = _jobs(parse_json(done.stdout), none)
        except Malformed:
            done = scheduler.ask(["qstat", "-x", "-f", *numbers])
            jobs = _facts(done.stdout)
            if not jobs and not _UNKNOWN.search(done.stderr):
                raise RunError(f"qstat failed: {scheduler.words(done)}",
                               code="scheduler-failed") from None
        # qsub may print the number without the server's name.
        own = {number.partition(".")[0]: number for number in numbers}
        return {
            own.get(number.partition(".")[0], number): _state(job) for number, job in jobs.items()
        }


def _jobs(answer: object, default: object) -> dict[str, dict[str, object]]:
    """Return the facts of each job from the parsed JSON output of qstat.

    If the output has no key "Jobs", return `default`.
    """
    jobs = answer.get("Jobs", default) if isinstance(answer, dict) else None
    if not isinstance(jobs, dict) or not all(
        isinstance(job, dict) and job.get("job_state") and isinstance(job["job_state"], str)
        for job in jobs.values()
    ):
        raise Malformed("no states of jobs")
    return jobs


def _facts(text: str) -> dict[str, dict[str, object]]:
    """Return state, exit status and comment of each job in the output of qstat.

    The output is text or JSON, which may be invalid. Jobs without a state are left out.
    """
    jobs: dict[str, dict[str, object]] = {}
    facts: dict[str, object] = {}
    for match in _FACT.finditer(text.replace("\n\t", "")):  # qstat wraps long lines
        if match["job"]:
            facts = jobs.setdefault(match["job"], {})
        else:
            facts.setdefault(match["key"], match["value"].rstrip(" ,}\t"))
    return {number: job for number, job in jobs.items() if job.get("job_state")}


def _state(job: dict[str, object]) -> State:
    letter = str(job["job_state"])
    name = STATES.get(letter)
    if name is None:
        name = "COMPLETED" if str(job.get("Exit_status")) == "0" else "FAILED"
    return State(name, str(job.get("comment", "None")), active=letter in STATES)
