"""LSF with jsrun: the commands, and the options of a job.

This module follows IBM's manuals and the user guide of Summit; it was not tested with LSF.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.cluster import scheduler
from trimaran.cluster.scheduler import Scheduler, Shape, State, host_mpirun
from trimaran.errors import RunError, UsageError
from trimaran.files import read_text
from trimaran.launch.specification import Text
from trimaran.parsing import Malformed, parse_json
from trimaran.process import Result

if TYPE_CHECKING:
    from trimaran.site_file import Cluster

STATES = {"PEND": "PENDING", "PROV": "CONFIGURING", "RUN": "RUNNING", "WAIT": "PENDING",
          "PSUSP": "SUSPENDED", "USUSP": "SUSPENDED", "SSUSP": "SUSPENDED", "UNKWN": "RUNNING"}
"""State of an active job in bjobs(1) -> name that Trimaran shows.

DONE, EXIT and ZOMBI are the states of a job that has ended.
"""


class Lsf(Scheduler):
    """The batch system LSF with jsrun (see `Scheduler`)."""

    name = "lsf"
    programs = ("bsub", "bjobs", "bkill")
    directive = "#BSUB"
    number = "LSB_JOBID"
    reads = ("%",)  # %J, %I and other patterns of -o (bsub(1))
    queued = (r".*\bJob <([0-9]+)> is submitted\b.*",)

    def options(self, name: str, shape: Shape, cluster: Cluster, elastic: bool) -> list[str]:
        """Return the options of the `#BSUB` lines."""
        if elastic:
            raise UsageError("min_nodes: a job of LSF cannot continue after the loss of a node,"
                             " because jsrun ends with it", code="scheduler-unsupported",
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
        """Return `signal_seconds`, rounded up to a multiple of 60: bsub accepts only minutes."""
        return -(-cluster.signal_seconds // 60) * 60

    def ranks(self, shape: Shape, cluster: Cluster, nodes: Text, tasks: Text) -> tuple[Text, ...]:
        """Return a jsrun command with one resource set for each task."""
        if shape.mpirun:
            return host_mpirun(shape, tasks)
        gpus = shape.gpus_per_node // shape.tasks_per_node
        return (
            "jsrun", "--nrs", tasks, "--rs_per_host", str(shape.tasks_per_node),
            "--tasks_per_rs", "1", "--cpu_per_rs", str(shape.cpus_per_task),
            *(["--gpu_per_rs", str(gpus)] if gpus else []),
            "--bind", f"packed:{shape.cpus_per_task}", "--launch_distribution", "packed",
        )

    def each_node(self, nodes: Text) -> tuple[Text, ...]:
        """Return a jsrun command with one task on each node."""
        return ("jsrun", "--nrs", nodes, "--rs_per_host", "1", "--tasks_per_rs", "1",
                "--cpu_per_rs", "ALL_CPUS")

    def submit(self, script: Path, folder: Path, keep_open: Sequence[int] = ()) -> str:
        """Queue `script`, which bsub reads from standard input, and return the job number."""
        text = read_text(folder / script)
        return scheduler.queue(self, ["bsub"], folder, keep_open, stdin=text)

    def named(self, name: str) -> list[str]:
        """Return the numbers of the user's jobs with this name."""
        done = _bjobs("-J", name, "-noheader", "-o", "jobid job_name delimiter='|'")
        if done.returncode != 0 and not _UNKNOWN.search(done.stderr):
            raise RunError(f"bjobs failed: {scheduler.words(done)}", code="scheduler-failed")
        return scheduler.called_so(done.stdout, name)

    def states(self, numbers: list[str]) -> dict[str, State]:
        """Return the states of the jobs that LSF still lists.

        If bjobs prints no valid JSON (before LSF 10.1, or if a reason contains a quote), its text
        output is parsed.
        """
        done = _bjobs("-json", "-o", " ".join(COLUMNS), *numbers)
        try:
            rows = _records(parse_json(done.stdout))
        except Malformed:
            words = f"{' '.join(COLUMNS)} delimiter='|'"
            done = _bjobs("-noheader", "-o", words, *numbers)
            rows = [dict(zip(map(str.upper, COLUMNS), cells, strict=True))
                    for cells in re.findall(_ROW, done.stdout, re.M)]
            if not rows and not _UNKNOWN.search(done.stderr):
                raise RunError(f"bjobs failed: {scheduler.words(done)}",
                               code="scheduler-failed") from None
        return {row["JOBID"]: _state(row) for row in rows}


COLUMNS = ("jobid", "stat", "exit_reason", "pend_reason")
"""Columns that are requested from bjobs."""

_ROW = r"^([0-9]+)\|([A-Z]+)\|([^|\n]*)\|(.*)$"

_UNKNOWN = re.compile(r"is not found|No .*job found", re.I)
"""Matches the messages of bjobs about a job that it does not list."""


def _bjobs(*words: str) -> Result:
    return scheduler.ask(["bjobs", "-a", *words])


def _records(answer: object) -> list[dict[str, str]]:
    """Return the records in the parsed JSON output of bjobs that contain a state."""
    rows = answer.get("RECORDS") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Malformed("no records of jobs")
    known = [row for row in rows if "STAT" in row]
    if not all(isinstance(row["STAT"], str) and isinstance(row.get("JOBID"), str) for row in known):
        raise Malformed("no states of jobs")
    return known


def _state(row: dict[str, str]) -> State:
    name = STATES.get(row["STAT"], "COMPLETED" if row["STAT"] == "DONE" else "FAILED")
    reasons = (row.get("PEND_REASON"), row.get("EXIT_REASON"))
    reason = next((str(one) for one in reasons if one and one != "-"), "None")
    return State(name, reason, active=row["STAT"] in STATES)
