"""Submitted runs: where each is, and what it says."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimaran.cluster import jobs
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import SCRIPT
from trimaran.errors import TrimaranError
from trimaran.parsing import Malformed, parse_json
from trimaran.runs import links, rundir
from trimaran.runs.record import RunRecord
from trimaran.runs.rundir import RUNS
from trimaran.runs.training import LOG
from trimaran.sites import Site

TAIL = 4096
"""Bytes at the end of a metrics file in which its last line is looked for."""

ENDED = ("completed", "failed", "interrupted", "cancelled", "lost")
"""States of a run that goes on only when somebody asks for it."""

_BEGAN = re.compile(r"job\.sh: job .*, link \d+: ")
"""What the script of a job writes into the log when it starts ranks."""

POLL_SECONDS = 0.5
"""How often a log is looked at, and every fourth time the batch system is asked."""


@dataclass(frozen=True)
class Watched:
    """One submitted run.

    Attributes:
        state: what `run.json`, its links and the batch system say together.
        step: the last one in its metrics; None before the first.
        reason: why it waits, ended or was stopped.
    """

    directory: Path
    recipe: str
    job: str
    state: str
    nodes: int
    links: int
    step: int | None
    reason: str


def folders(site: Site) -> list[Path]:
    """Return where runs are made: below the working directory, and on the scratch of clusters."""
    scratch = [one.scratch / RUNS for one in site.clusters.values() if one.scratch is not None]
    known = {place.resolve(): place for place in (*scratch, Path(RUNS))}  # each once
    return list(known.values())


def found(places: list[Path]) -> list[Path]:
    """Return the run directories below `places` that were submitted, the oldest first."""
    scripts = [script for place in places for script in place.glob(f"**/{SCRIPT}")]
    scripts.sort(key=lambda path: (path.stat().st_mtime_ns, path))
    return [path.parent.parent for path in scripts]


def look(directories: list[Path]) -> list[Watched]:
    """Return how each run stands; each batch system is asked once.

    Raises:
        UsageError: one is no submitted run, or is damaged.
        RunError: a batch system does not answer.
    """
    return _look({directory: jobs.submitted(directory) for directory in directories})


def overview(directories: list[Path]) -> list[Watched]:
    """Return how each run stands, as `look`: one that is damaged hides none of the others.

    The state of such a one is "unknown", as of those whose batch system does not answer here.
    """
    rows: dict[Path, Watched] = {}
    by_system: dict[str, dict[Path, RunRecord]] = {}
    for directory in directories:
        with _unknown(rows, [directory]):
            record = jobs.submitted(directory)
            by_system.setdefault(jobs.scheduler_of(record).name, {})[directory] = record
    for records in by_system.values():
        with _unknown(rows, records):
            rows.update(zip(records, _look(records), strict=True))
    return [rows[directory] for directory in directories]


@contextmanager
def _unknown(rows: dict[Path, Watched], directories: Iterable[Path]) -> Iterator[None]:
    """Write into `rows` why nothing is known of the runs, where that cannot be told."""
    try:
        yield
    except TrimaranError as error:
        rows.update({
            one: Watched(one, "", "-", "unknown", 0, 0, None, str(error)) for one in directories
        })


def _look(records: Mapping[Path, RunRecord]) -> list[Watched]:
    asked: dict[Scheduler, list[str]] = {}
    for directory, record in records.items():
        if record.status != "completed":  # one that failed may be queued again
            asked.setdefault(jobs.scheduler_of(record), []).extend(jobs.numbers(directory)[-1:])
    known = {
        number: state
        for scheduler, numbers in asked.items()
        for number, state in scheduler.states(numbers).items()
    }
    return [_watched(directory, record, known) for directory, record in records.items()]


def _watched(directory: Path, record: RunRecord, known: Mapping[str, State]) -> Watched:
    chain, own = links.read(directory), jobs.numbers(directory)
    job = own[-1] if own else "-"
    state: str = record.status
    reason = chain[-1].end.reason if chain and chain[-1].end else ""
    now = known.get(job)
    if state == "completed":
        pass
    elif now is not None and now.active:
        state, reason = now.name.lower(), now.reason if now.reason != "None" else reason
    elif job in jobs.numbers(directory, jobs.CANCELLED):
        state, reason = "cancelled", "cancelled"
    elif (refused := links.refusal(directory)) is not None and refused.job == job:
        state, reason = "failed", refused.reason
    elif state in ("queued", "running"):
        state, reason = _fate(directory, now)
    nodes = len(chain[-1].hosts) if chain else 0
    return Watched(
        directory, record.recipe.name, job, state, nodes, len(chain), _last_step(directory), reason,
    )


def _fate(directory: Path, now: State | None) -> tuple[str, str]:
    """Return state and reason of a run whose job ended without a word in the run directory."""
    if not jobs.numbers(directory):
        return "lost", "it was never queued: trimaran resume queues it"
    if now is None:
        return "lost", "the batch system knows its job no more"
    ended = now.name.lower().replace("_", " ")
    if now.name == "CANCELLED":
        return "cancelled", ended
    with (directory / LOG).open(encoding="utf-8", errors="replace") as log:
        lines = [text for line in log if (text := line.strip())]
    began = max((at for at, line in enumerate(lines, 1) if _BEGAN.match(line)), default=0)
    said = [line for line in lines[began:] if line.startswith("job.sh: ")]
    if now.name == "FAILED" and not said:  # the others say themselves what ended the job
        said = lines[began:]
    return "failed", said[-1] if said else ended


def _last_step(directory: Path) -> int | None:
    try:
        with (directory / rundir.METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            step = parse_json(line)["metadata"]["step"]
        except (Malformed, ValueError, KeyError, TypeError):
            continue
        if isinstance(step, int):
            return step
    return None


def follow(directory: Path, say: Callable[[str], None], *, on: bool) -> None:
    """Say the lines of a run's log; with `on`, those that come, until its job has ended.

    Raises:
        UsageError: it is no submitted run.
    """
    jobs.submitted(directory)
    with (directory / LOG).open(encoding="utf-8", errors="replace") as log:
        turn, rest = 0, ""
        while True:
            ended = on and turn % 4 == 0 and look([directory])[0].state in ENDED
            for line in log:
                rest += line
                if rest.endswith("\n"):
                    say(rest.removesuffix("\n"))
                    rest = ""
            if not on or ended:
                break
            turn += 1
            time.sleep(POLL_SECONDS)
        if rest:
            say(rest)
