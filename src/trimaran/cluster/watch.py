"""Show the states and the logs of submitted runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimaran.cluster import jobs, several
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import SCRIPT
from trimaran.errors import TrimaranError, UsageError
from trimaran.files import open_lines, read_end
from trimaran.parsing import Malformed, parse_json
from trimaran.reporting import Reporter
from trimaran.run import job_chain, run_directory
from trimaran.run.app_process import LOG
from trimaran.run.job_chain import Link
from trimaran.run.record import RunRecord, status_after
from trimaran.run.run_directory import RUNS
from trimaran.site_file import Site

TAIL, LOG_TAIL = 4096, 1 << 20
"""Number of bytes to read from the end of a metrics file, and from the end of a log."""

LONGEST = 1 << 16
"""Maximum number of characters of a log to print at once; longer lines are printed in parts."""

ENDED = ("completed", "failed", "interrupted", "cancelled", "lost", "blocked")
"""States in which a run does not continue by itself.

A run in one of these states, except `completed`, continues after `trimaran resume`.
"""

UNKNOWN = "unknown"
"""State of a run whose batch system does not answer, or whose files are damaged."""

_BEGAN = re.compile(r"job\.sh: job .*, link \d+: ")
"""Matches the log line that a job script prints when it starts the ranks."""

POLL_SECONDS = 0.5
"""Seconds between two reads of a log. Every fourth read also queries the batch system."""


@dataclass(frozen=True)
class Watched:
    """The status of one submitted run.

    A batch system may start a run several times; each of these starts is called a link.

    Attributes:
        directory: the run directory.
        recipe: name of the recipe.
        job: number of the newest job in the batch system; "-" without a job.
        state: state of the run, from `run.json`, the record of its links and the batch system.
        nodes: number of nodes in the newest link; 0 before the first link.
        links: number of links.
        step: last training step in the metrics; None before the first step.
        reason: why the run waits, ended or was stopped.
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
    """Return the folders that contain run directories.

    There is one in the working directory, and one in the scratch folder of each cluster.
    """
    scratch = [cluster.scratch / RUNS for cluster in site.clusters.values()
               if cluster.scratch is not None]
    known = {place.resolve(): place for place in (*scratch, Path(RUNS))}  # without duplicates
    return list(known.values())


def find(places: list[Path]) -> list[Path]:
    """Return the submitted run directories below `places`, the oldest first."""
    scripts = [script for place in places for script in place.glob(f"**/{SCRIPT}")]
    scripts.sort(key=lambda path: (_time(path), path))
    runs = [path.parent.parent for path in scripts]
    return [run for run in runs if not several.shares_job(run)]


def _time(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:  # removed meanwhile, or in a folder of another user
        return 0


@dataclass(frozen=True)
class _Answer:
    """The answer of a batch system about a run.

    Attributes:
        job: number of the newest job of the run; "-" without a job.
        state: state of that job; None: the batch system does not list it.
        silence: why the batch system did not answer; empty if it answered.
    """

    job: str
    state: State | None = None
    silence: str = ""


def look(directories: list[Path], reporter: Reporter | None = None) -> list[Watched]:
    """Return the status of each run; each batch system is queried once.

    If a batch system does not answer, the state of its runs is UNKNOWN.

    Raises:
        UsageError: a directory is not a submitted run, or its files are damaged.
    """
    records = {directory: jobs.submitted(directory) for directory in directories}
    answers = _ask(records, {run: job_chain.numbers(run) for run in records}, reporter)
    rows: dict[Path, Watched] = {}
    for run in records:
        rows[run] = _watched(run, answers[run], rows)
    return list(rows.values())


def overview(directories: list[Path], reporter: Reporter | None = None) -> list[Watched]:
    """Return the status of each run as `look` does, but report a damaged run as UNKNOWN."""
    rows: dict[Path, Watched] = {}
    records: dict[Path, RunRecord] = {}
    own: dict[Path, list[str]] = {}
    for directory in directories:
        with _unknown(rows, directory):
            record = jobs.submitted(directory)
            jobs.scheduler_of(record)
            own[directory] = job_chain.numbers(directory)
            records[directory] = record
    answers = _ask(records, own, reporter)
    for directory in records:
        with _unknown(rows, directory):
            rows[directory] = _watched(directory, answers[directory], rows)
    return [rows[directory] for directory in directories]


@contextmanager
def _unknown(rows: dict[Path, Watched], directory: Path) -> Iterator[None]:
    """Run the `with` block; if it fails, report the run `directory` in `rows` as UNKNOWN."""
    try:
        yield
    except (TrimaranError, OSError) as error:  # OSError: a run of another user may be unreadable
        rows[directory] = Watched(directory, "", "-", UNKNOWN, 0, 0, None, str(error))


def _ask(
    records: Mapping[Path, RunRecord], own: Mapping[Path, list[str]], reporter: Reporter | None
) -> dict[Path, _Answer]:
    newest = {directory: (own[directory] or ["-"])[-1] for directory in records}
    answers = {directory: _Answer(job) for directory, job in newest.items()}
    asked: dict[Scheduler, list[Path]] = {}
    for directory, record in records.items():
        if record.status != "completed":  # a failed run may have been queued again
            asked.setdefault(jobs.scheduler_of(record), []).append(directory)
    for scheduler, runs in asked.items():
        try:
            with jobs.asking(scheduler, reporter):
                for run in filter(jobs.is_queueing, runs):
                    newest[run] = (jobs.every(run, records[run], scheduler) or ["-"])[-1]
                numbers = [newest[run] for run in runs if newest[run] != "-"]
                states = scheduler.states(numbers) if numbers else {}
            answers.update((run, _Answer(newest[run], states.get(newest[run]))) for run in runs)
        except TrimaranError as error:
            answers.update((run, _Answer(newest[run], silence=str(error))) for run in runs)
    return answers


def _watched(directory: Path, answer: _Answer, others: Mapping[Path, Watched]) -> Watched:
    """Return the status of a run.

    If the run waits for an earlier run to complete, the status of the earlier run is taken from
    `others`, if it is there.
    """
    # Read after the batch system has answered, so that no end of a job is missed in between.
    record = jobs.submitted(directory)
    chain, job, now = job_chain.read(directory), answer.job, answer.state
    state: str = record.status
    reason = chain[-1].end.reason if chain and chain[-1].end else ""
    if answer.silence:
        state, reason = UNKNOWN, answer.silence
    elif state == "completed":
        pass
    elif job == "-" and record.job and record.job.before and job_chain.refusal(directory) is None:
        state, reason = _waiting(Path(record.job.before), others)
    elif now is not None and now.active and not _over(directory, record, chain, job):
        state, reason = now.name.lower(), now.reason if now.reason != "None" else reason
    elif job in job_chain.numbers(directory, job_chain.CANCELLED):
        state, reason = "cancelled", "cancelled"
    elif (refused := job_chain.refusal(directory)) is not None and refused.job == job:
        state, reason = "failed", refused.reason
    elif state in ("queued", "running"):
        logs = [directory / LOG]
        if record.job and record.job.together:  # the shared job may have ended before the training
            logs.append(directory.parent / LOG)
        state, reason = _fate(logs, job, now)
    nodes = len(chain[-1].hosts) if chain else 0
    return Watched(
        directory, record.recipe.name, job, state, nodes, len(chain), _last_step(directory), reason,
    )


def _over(directory: Path, record: RunRecord, chain: list[Link], job: str) -> bool:
    """Return whether a training has failed although its job is still active.

    Several trainings can share a job, which does not start a failed training again.
    """
    if record.job is None or record.job.together is None:
        return False
    if (refused := job_chain.refusal(directory)) is not None and refused.job == job:
        return True
    end = chain[-1].end if chain and chain[-1].job == job else None
    return end is not None and status_after(end.exit_status) == "failed"


def _waiting(before: Path, others: Mapping[Path, Watched]) -> tuple[str, str]:
    """Return the state of a run that waits for the run `before`, and the reason for this state."""
    known = {directory.absolute(): row for directory, row in others.items()}
    try:
        if _waits_for_itself(before):
            return "blocked", f"{before}: `before` in run.json leads back to the same run"
        first = known.get(before) or look([before])[0]
    except UsageError as error:
        return "blocked", f"the run before is not there: {error}"
    if first.state == "completed":
        return "lost", "the run before has completed: `trimaran resume` queues this one"
    if first.state in ENDED:
        return "blocked", (f"the run before is {first.state}: `trimaran resume {before}` continues"
                           " the chain")
    return "waiting", f"starts when {before} has completed"


def _waits_for_itself(directory: Path) -> bool:
    """Return whether the run never starts, because runs wait for each other in a circle.

    Only a damaged `run.json` can cause such a circle.
    """
    seen: set[Path] = set()
    while directory not in seen:
        seen.add(directory)
        job = jobs.submitted(directory).job
        if job is None or job.before is None:
            return False
        directory = Path(job.before)
    return True


def _fate(logs: list[Path], job: str, now: State | None) -> tuple[str, str]:
    """Return the state of a run whose job ended without a record of the end, and the reason.

    The reason of a failure is the message (see `_message`) in the first of `logs` that has one, or
    else the state of the job.
    """
    if job == "-":
        return "lost", "no job was queued: `trimaran resume` queues one"
    if now is None:
        return "lost", "the batch system no longer lists the job"
    ended = now.name.lower().replace("_", " ")
    if now.name == "CANCELLED":
        return "cancelled", ended
    found = (_message(log, failed=now.name == "FAILED") for log in logs)
    return "failed", next(filter(None, found), ended)


def _message(file: Path, *, failed: bool) -> str:
    """Return the last message that the job script wrote to a log, or "" without a message.

    If the script wrote no message and the job has the state FAILED (`failed`), the last line of the
    log is returned. Other states, such as TIMEOUT, already name the reason of the end.
    """
    try:
        log = read_end(file, LOG_TAIL).decode(errors="replace")
    except FileNotFoundError:
        log = ""
    lines = [text for line in log.splitlines() if (text := line.strip())]
    began = max((at for at, line in enumerate(lines, 1) if _BEGAN.match(line)), default=0)
    messages = [line for line in lines[began:] if line.startswith("job.sh: ")]
    if failed and not messages:
        messages = lines[began:]
    return messages[-1] if messages else ""


def _last_step(directory: Path) -> int | None:
    try:
        lines = read_end(directory / run_directory.METRICS, TAIL).splitlines()
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
    """Print the lines of the log of a run.

    Args:
        directory: the run directory.
        say: function that prints a line.
        on: whether to wait for new lines, and print them, until the job has ended.

    Raises:
        UsageError: `directory` is not a submitted run.
    """
    jobs.submitted(directory, chain=False)
    with open_lines(directory / LOG) as log:
        turn, rest = 0, ""
        while True:
            ended = on and turn % 4 == 0 and look([directory])[0].state in ENDED
            while line := log.readline(LONGEST):
                rest += line
                if rest.endswith("\n") or len(rest) >= LONGEST:
                    say(rest.removesuffix("\n"))
                    rest = ""
            if not on or ended:
                break
            turn += 1
            time.sleep(POLL_SECONDS)
        if rest:
            say(rest)
