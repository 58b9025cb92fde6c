"""PBS Professional and OpenPBS: their commands, and what a job says to them.

Tasks are started by the host's Open MPI, which PBS tells the nodes of the job (PBS_NODEFILE).
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
from trimaran.launch.words import Text
from trimaran.parsing import Malformed, parse_json

if TYPE_CHECKING:
    from trimaran.site_file import Cluster

STATES = {"Q": "PENDING", "H": "PENDING", "W": "PENDING", "T": "PENDING", "M": "PENDING",
          "R": "RUNNING", "S": "SUSPENDED", "U": "SUSPENDED", "E": "COMPLETING", "B": "RUNNING"}
"""Letters of a job that has not ended (qstat(1B), job states); F and X have."""

_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"
"""What qsub refuses in the name of a job; some versions take a full stop, too."""

_HEADING = rf'(?:^Job Id: *|[{{,]\s*")(?P<job>{NUMBER})(?: *$|"\s*:\s*\{{)'
_KEY = r'(?:^ *|[{,]\s*")(?P<key>job_state|Exit_status|comment)"? *[:=] *"?(?P<value>[^\n"]*)'
_FACT = re.compile(f"{_HEADING}|{_KEY}", re.M)
"""Where a job begins in what qstat says, and what is asked of it: in its text and in its JSON."""

_UNKNOWN = re.compile(r"Unknown Job|has finished", re.I)
"""What qstat says of a job that it does not know (any more)."""


class Pbs(Scheduler):
    """PBS Professional and OpenPBS; see `Scheduler`."""

    name = "pbs"
    programs = ("qsub", "qstat", "qdel")
    directive = "#PBS"
    number = "PBS_JOBID"
    silent = True
    reads = ("^array_index^",)  # of -o (qsub(1B))
    queued = (r"([0-9]+(?:\[[0-9]*\])?\.[A-Za-z][A-Za-z0-9_.-]*)", f"({NUMBER})")

    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return the words of the `#PBS` lines."""
        if elastic:
            raise UsageError("a job of PBS ends with its first lost node: it is not elastic",
                             hint="leave min_nodes out of the recipe, or use a cluster with Slurm")
        if cluster.qos is not None:
            raise UsageError("PBS has no quality of service: take qos out of the cluster's entry"
                             " in the site file", hint="queues have their own: partition")
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
        """Return the host's mpirun."""
        return host_mpirun(shape, tasks)

    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return the host's mpirun, with one task a node."""
        return ("mpirun", "-n", nodes, "--map-by", "ppr:1:node", "--bind-to", "none")

    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue `script`; return the job's number."""
        return scheduler.queue(self, ["qsub", str(script)], folder, keep_open)

    def called(self, name: str) -> str:
        """Return the name as qsub takes it."""
        return re.sub(_NOT_IN_NAMES, "-", name)

    def named(self, name: str) -> list[str]:
        """Return the numbers of the jobs of that name."""
        done = scheduler.ask(["qselect", "-x", "-N", name])
        if done.returncode != 0:
            raise RunError(f"qselect does not answer: {scheduler.words(done)}")
        return re.findall(rf"^({NUMBER})$", done.stdout, re.M)

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of those of the jobs that PBS still knows.

        Its JSON is none where a value has a zero in front, a tab or a quote, or a key comes twice,
        which any variable of a job may bring about: then its text is read.
        """
        # With an unknown job among them it says 35, and all the others.
        done = scheduler.ask(["qstat", "-x", "-f", "-F", "json", *numbers])
        try:
            # Of jobs that are all unknown it says no more than that, beside the JSON.
            none: object = {} if _UNKNOWN.search(done.stderr) else None
            jobs = _jobs(parse_json(done.stdout), none)
        except Malformed:
            done = scheduler.ask(["qstat", "-x", "-f", *numbers])
            jobs = _facts(done.stdout)
            if not jobs and not _UNKNOWN.search(done.stderr):
                raise RunError(f"qstat does not answer: {scheduler.words(done)}") from None
        own = {number.partition(".")[0]: number for number in numbers}  # qsub may leave it at that
        return {
            own.get(number.partition(".")[0], number): _state(job) for number, job in jobs.items()
        }


def _jobs(answer: object, default: object) -> dict[str, dict[str, object]]:
    """Return the facts of each job in qstat's JSON, or, where it has no such part, the default.

    Raises:
        Malformed: they are not in their place.
    """
    jobs = answer.get("Jobs", default) if isinstance(answer, dict) else None
    if not isinstance(jobs, dict) or not all(
        isinstance(job, dict) and job.get("job_state") and isinstance(job["job_state"], str)
        for job in jobs.values()
    ):
        raise Malformed("no states of jobs")
    return jobs


def _facts(text: str) -> dict[str, dict[str, object]]:
    """Return what is asked of each job, by its number, from qstat's text, or from broken JSON."""
    jobs: dict[str, dict[str, object]] = {}
    facts: dict[str, object] = {}
    for found in _FACT.finditer(text.replace("\n\t", "")):  # it breaks long lines
        if found["job"]:
            facts = jobs.setdefault(found["job"], {})
        else:
            facts.setdefault(found["key"], found["value"].rstrip(" ,}\t"))
    return {number: job for number, job in jobs.items() if job.get("job_state")}


def _state(job: dict[str, object]) -> State:
    letter = str(job["job_state"])
    name = STATES.get(letter)
    if name is None:
        name = "COMPLETED" if str(job.get("Exit_status")) == "0" else "FAILED"
    return State(name, str(job.get("comment", "None")), active=letter in STATES)
