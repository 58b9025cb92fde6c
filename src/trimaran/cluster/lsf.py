"""LSF with jsrun: their commands, and what a job says to them.

Written after IBM's manuals and Summit's user guide, and looked at as text only.
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

STATES = {"PEND": "PENDING", "PROV": "CONFIGURING", "RUN": "RUNNING", "WAIT": "PENDING",
          "PSUSP": "SUSPENDED", "USUSP": "SUSPENDED", "SSUSP": "SUSPENDED", "UNKWN": "RUNNING"}
"""States of a job that has not ended (bjobs(1)); DONE, EXIT and ZOMBI have."""


class Lsf(Scheduler):
    """LSF with jsrun; see `Scheduler`."""

    name = "lsf"
    programs = ("bsub", "bjobs", "bkill")
    directive = "#BSUB"
    number = "LSB_JOBID"

    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return the words of the `#BSUB` lines."""
        if elastic:
            raise UsageError("jsrun ends with the first lost node: a job of LSF is not elastic",
                             hint="leave min_nodes out of the recipe, or use a cluster with Slurm")
        hours, minutes, seconds = shape.walltime.split(":")
        minutes = f"{int(minutes) + (seconds != '00'):02}"
        return [
            f"-J {name}", f"-nnodes {shape.nodes}", f"-W {hours}:{minutes}",
            *([f"-q {cluster.partition}"] if cluster.partition else []),
            *([f"-P {cluster.account}"] if cluster.account else []),
            *([f"-sla {cluster.qos}"] if cluster.qos else []),
            *([f"-R {cluster.constraint}"] if cluster.constraint else []),
            "-o job/lsf-%J.txt", f"-wt {self.early(cluster) // 60}", "-wa USR1", "-r",
        ]

    def early(self, cluster: Cluster) -> int:
        """Return the seconds of whole minutes: bsub takes no others."""
        return -(-cluster.signal_seconds // 60) * 60

    def ranks(self, shape: Shape, cluster: Cluster, nodes: str, tasks: str) -> tuple[str, ...]:
        """Return jsrun, with a resource set of its own for each task."""
        if shape.mpirun:
            return host_mpirun(shape, tasks)
        gpus = shape.gpus_per_node // shape.tasks_per_node
        return (
            "jsrun", "--nrs", tasks, "--rs_per_host", str(shape.tasks_per_node),
            "--tasks_per_rs", "1", "--cpu_per_rs", str(shape.cpus_per_task),
            *(["--gpu_per_rs", str(gpus)] if gpus else []),
            "--bind", f"packed:{shape.cpus_per_task}", "--launch_distribution", "packed",
        )

    def each_node(self, nodes: str) -> tuple[str, ...]:
        """Return jsrun, with one task a node."""
        return ("jsrun", "--nrs", nodes, "--rs_per_host", "1", "--tasks_per_rs", "1",
                "--cpu_per_rs", "ALL_CPUS")

    def warn(self, shape: Shape) -> str:
        """Return the shell command that has all ranks stop; jsrun passes this one on."""
        return WARN_MPIRUN if shape.mpirun else 'kill -USR1 "$child"'

    def submit(self, script: Path, folder: Path) -> str:
        """Queue `script`, which bsub reads from its standard input; return the job's number."""
        said = queued(["bsub"], folder, stdin=(folder / script).read_text(encoding="utf-8"))
        found = re.search(r"<(\d+)>", said)
        if found is None:
            raise RunError(f"bsub names no job: {said}")
        return found[1]

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of those of the jobs that LSF still knows."""
        what = "jobid stat exit_code exit_reason pend_reason"
        done = process.run(["bjobs", "-a", "-json", "-o", what, *numbers], timeout=60)
        try:
            rows = parse_json(done.stdout)["RECORDS"]
            return {row["JOBID"]: _state(row) for row in rows if "STAT" in row}
        except (Malformed, ValueError, LookupError, TypeError) as error:
            raise RunError(f"bjobs does not answer: {done.stderr.strip() or error}") from error


def _state(row: dict[str, str]) -> State:
    name = STATES.get(row["STAT"], "COMPLETED" if row["STAT"] == "DONE" else "FAILED")
    reason = row.get("PEND_REASON") or row.get("EXIT_REASON") or "None"
    return State(name, reason, active=row["STAT"] in STATES)
