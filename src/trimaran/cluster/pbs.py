"""PBS Professional and OpenPBS: their commands, and what a job says to them.

Tasks are started by the host's Open MPI, which PBS tells the nodes of the job (PBS_NODEFILE).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran import process
from trimaran.cluster.scheduler import WARN_MPIRUN, Scheduler, Shape, State, host_mpirun, queued
from trimaran.errors import RunError, UsageError
from trimaran.parsing import Malformed, parse_json

if TYPE_CHECKING:
    from trimaran.sites import Cluster

STATES = {"Q": "PENDING", "H": "PENDING", "W": "PENDING", "T": "PENDING", "M": "PENDING",
          "R": "RUNNING", "S": "SUSPENDED", "U": "SUSPENDED", "E": "COMPLETING", "B": "RUNNING"}
"""Letters of a job that has not ended (qstat(1B), job states); F and X have."""

_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"
"""What qsub refuses in the name of a job; some versions take a full stop, too."""


class Pbs(Scheduler):
    """PBS Professional and OpenPBS; see `Scheduler`."""

    name = "pbs"
    programs = ("qsub", "qstat", "qdel")
    directive = "#PBS"
    number = "PBS_JOBID"
    silent = True

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
            f"-N {re.sub(_NOT_IN_NAMES, '-', name)}",
            f"-l select={':'.join(chunk)}", "-l place=scatter", f"-l walltime={shape.walltime}",
            *([f"-q {cluster.partition}"] if cluster.partition else []),
            *([f"-A {cluster.account}"] if cluster.account else []),
            "-j oe", "-o job/", "-r y",
        ]

    def ranks(self, shape: Shape, cluster: Cluster, nodes: str, tasks: str) -> tuple[str, ...]:
        """Return the host's mpirun."""
        return host_mpirun(shape, tasks)

    def each_node(self, nodes: str) -> tuple[str, ...]:
        """Return the host's mpirun, with one task a node."""
        return ("mpirun", "-n", nodes, "--map-by", "ppr:1:node", "--bind-to", "none")

    def warn(self, shape: Shape) -> str:
        """Return the shell command that has all ranks stop."""
        return WARN_MPIRUN

    def submit(self, script: Path, folder: Path) -> str:
        """Queue `script`; return the job's number."""
        return queued(["qsub", str(script)], folder)

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of those of the jobs that PBS still knows."""
        # With an unknown job among them it says 35, and all the others.
        done = process.run(["qstat", "-x", "-f", "-F", "json", *numbers], timeout=60)
        try:
            jobs = parse_json(done.stdout).get("Jobs", {})
            return {number: _state(job) for number, job in jobs.items()}
        except (Malformed, ValueError, AttributeError, KeyError) as error:
            raise RunError(f"qstat does not answer: {done.stderr.strip() or error}") from error


def _state(job: dict[str, object]) -> State:
    letter = str(job["job_state"])
    name = STATES.get(letter)
    if name is None:
        name = "COMPLETED" if job.get("Exit_status") == 0 else "FAILED"
    return State(name, str(job.get("comment", "None")), active=letter in STATES)
