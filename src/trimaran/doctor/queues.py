"""Compare the partition or queue of the batch system with the time and nodes of a recipe.

This module parses the output of `scontrol show partition` (Slurm), `qstat -Q -f` (PBS) and
`bqueues -l` (LSF), whose formats are documented in scontrol(1), qstat(1B) and bqueues(1).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.situation import Situation

FINDINGS: dict[str, Explained] = {
    "partition": Explained(
        "places", "fail",
        "The partition or queue of the site file does not exist or has too few nodes, so that the"
        " job is refused or waits for ever; it is a WARN if the partition is closed at the moment.",
        "name another partition in the site file; the batch system lists them: sinfo, qstat -Q,"
        " bqueues",
        "described login nodes of Slurm, PBS and LSF",
    ),
    "time-limit": Explained(
        "places", "fail",
        "The walltime of the recipe exceeds the time limit of the partition: the job is refused or"
        " waits for ever. It is a WARN if the site file names a quality of service, which may allow"
        " more.",
        "name a partition with a higher limit in the site file, or reduce resources.walltime."
        " `trimaran resume` continues a run that the time limit has ended",
        "described login nodes of Slurm, PBS and LSF",
    ),
}
"""Documentation of the findings about partitions and queues, by ID."""


@dataclass(frozen=True)
class Queue:
    """A partition of Slurm, or a queue of PBS or LSF.

    Attributes:
        name: the name.
        seconds: time limit of a job; None: unlimited or unknown.
        nodes: largest number of nodes of a job; None: unlimited or unknown.
        state: "" if jobs can start now; otherwise the state of the queue as a text.
    """

    name: str
    seconds: int | None
    nodes: int | None
    state: str


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the queue, or [] without a recipe or without a batch system."""
    text, cluster = situation.facts.text("queues"), situation.cluster
    if not text or cluster is None or situation.recipe is None:
        return []
    read = {"slurm": _slurm, "pbs": _pbs, "lsf": _lsf}[cluster.scheduler]
    queues, default = read(text)
    name = cluster.partition or default
    if not queues or name is None or not re.fullmatch(r"[\w.-]+", name):
        return []  # such as several partitions, which Slurm accepts with commas between them
    if name not in queues:
        known = ", ".join(list(queues)[:20])
        return [found(FINDINGS, "partition", "fail",
                      f"unknown partition '{name}' (known: {known})")]
    return [_partition(situation, queues[name]), *_time(situation, queues[name])]


def _partition(situation: Situation, queue: Queue) -> Finding:
    assert situation.recipe is not None  # noqa: S101 - for the type checker; `check` tested it
    need = situation.recipe.recipe.resources.nodes
    if queue.nodes is not None and queue.nodes < need:
        return found(FINDINGS, "partition", "fail",
                     f"a job in {queue.name} has at most {queue.nodes} nodes, the recipe {need}")
    level: Level = "warn" if queue.state else "ok"
    return found(FINDINGS, "partition", level, f"{queue.name}: {queue.state or 'open'}")


def _time(situation: Situation, queue: Queue) -> list[Finding]:
    assert situation.recipe is not None  # noqa: S101 - for the type checker; `check` tested it
    if queue.seconds is None:
        return []
    walltime = situation.recipe.recipe.resources.walltime
    level: Level = "ok"
    if (duration(walltime) or 0) > queue.seconds:
        level = "warn" if situation.cluster is not None and situation.cluster.qos else "fail"
    return [found(FINDINGS, "time-limit", level,
                  f"limit of {queue.name}: {_hours(queue.seconds)}, the recipe's walltime:"
                  f" {walltime}")]


def _hours(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def duration(text: str) -> int | None:
    """Return a duration in seconds; None if `text` does not have one of the following formats.

    The formats are `[DAYS-]HOURS:MINUTES:SECONDS`, `MINUTES:SECONDS` and `SECONDS`.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _slurm(text: str) -> tuple[dict[str, Queue], str | None]:
    """Return the partitions of Slurm by name, and the name of the default partition."""
    queues: dict[str, Queue] = {}
    default = None
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = fields.get("PartitionName")
        if name is None:
            continue
        limits = [_number(fields.get(key)) for key in ("MaxNodes", "TotalNodes")]
        state = fields.get("State", "UP")
        queues[name] = Queue(
            name, duration(fields.get("MaxTime", "")),
            min((limit for limit in limits if limit is not None), default=None),
            "" if state == "UP" else state,
        )
        if fields.get("Default") == "YES":
            default = name
    return queues, default


def default_of_slurm(text: str) -> str | None:
    """Return the default partition in the output of `scontrol show partition`, or None."""
    return _slurm(text)[1]


def _pbs(text: str) -> tuple[dict[str, Queue], str | None]:
    """Return the queues of PBS by name, and None: the default queue is unknown."""
    queues: dict[str, Queue] = {}
    for part in re.split(r"^Queue:\s*", text, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        fields = dict(re.findall(r"^\s+([\w.]+) = (.*)$", rest, re.MULTILINE))
        closed = [word for word in ("enabled", "started") if fields.get(word) == "False"]
        queues[name.strip()] = Queue(
            name.strip(), duration(fields.get("resources_max.walltime", "")),
            _number(fields.get("resources_max.nodect")),
            f"not {' and not '.join(closed)}" if closed else "",
        )
    return queues, None


def _lsf(text: str) -> tuple[dict[str, Queue], str | None]:
    """Return the queue of LSF that `text` describes, keyed by its name, and the default queue.

    The default queue is always None, because `text` does not contain it. The dict is empty if
    `text` describes no queue.
    """
    name = re.search(r"^QUEUE:\s*(\S+)", text, re.MULTILINE)
    if name is None:
        return {}, None
    state = re.search(r"\b(Open|Closed):(Active|Inact)\S*", text)
    closed = "" if state is None or state[0].startswith("Open:Active") else state[0]
    return {name[1]: Queue(name[1], _run_limit(text), None, closed)}, None


def _run_limit(text: str) -> int | None:
    """Return the time limit RUNLIMIT in seconds from the output of `bqueues -l`, or None.

    It is in the table MAXIMUM LIMITS, where a row of values, such as `240.0 min of host1`, follows
    a row of names. The value that is printed nearest to the column of the name RUNLIMIT is used.
    """
    lines = text.partition("MAXIMUM LIMITS:")[2].splitlines()
    for names, row in itertools.pairwise(lines):
        if (name := re.search(r"\bRUNLIMIT\b", names)) is None:
            continue
        values = re.finditer(r"(\d+(?:\.\d+)?) min\b", row)
        nearest = min(values, key=lambda value: abs(value.start() - name.start()), default=None)
        return None if nearest is None else int(float(nearest[1]) * 60)
    return None
