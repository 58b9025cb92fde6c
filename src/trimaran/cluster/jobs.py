"""The jobs of submitted runs: queue them, find those that are active, continue and cancel them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trimaran import process
from trimaran.cluster import several
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import SCHEDULERS, SCRIPT
from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError
from trimaran.files import add_line, read_plain, write_atomic
from trimaran.reporting import Reporter, Silent
from trimaran.run import job_chain, run_directory
from trimaran.run.job_chain import CANCELLED, QUEUED, numbers
from trimaran.run.record import JobRecord, RunRecord

QUEUEING = "queueing"
"""Name of a file next to the script that exists until the number of a new job is recorded.

If the process is killed before this, the file remains. The file then shows that the queue may
contain a job whose number is not recorded. Such a job can be found only by its name.
"""


@dataclass(frozen=True)
class Submitted:
    """A job in the queue of the batch system: its run directory and its number."""

    directory: Path
    job: str


def again(directory: Path, reporter: Reporter | None = None) -> Submitted:
    """Queue a new job for a stopped run, which continues from the newest checkpoint.

    Raises:
        UsageError: the run has completed, its job has not ended, or a file of the run has changed.
        RunError: the batch system does not answer, or refuses the job.
    """
    directory = directory.absolute()
    record = submitted(directory)
    scheduler = scheduler_of(record)
    scheduler.check()
    _refuse_completed(directory, record)
    _refuse_early(record)
    with run_directory.alone(directory) as lock, asking(scheduler, reporter):
        run_directory.refuse_foreign(directory)
        if active := still_active(directory, record, scheduler):
            job, state = active[0]
            raise UsageError(f"job {job} of the run in {directory} is {state.name}",
                             code="job-active", hint=f"`trimaran cancel {directory}` ends it")
        _refuse_completed(directory, submitted(directory))  # its job may have ended just now
        assert record.job is not None  # noqa: S101 - `submitted` refuses None
        _check_submitted(directory, record.job)
        return queue([directory], record.job.name, scheduler, [lock])


def _refuse_completed(directory: Path, record: RunRecord) -> None:
    if record.status == "completed":
        raise UsageError(f"the run in {directory} has already completed", code="run-completed",
                         hint=f"`trimaran report {directory}` judges it")


def _refuse_early(record: RunRecord) -> None:
    """Raise UsageError if this run starts from another run that has not completed."""
    if record.job is None or record.job.before is None:
        return
    before = Path(record.job.before)
    if submitted(before).status != "completed":
        raise UsageError(f"the run starts from {before}, which has not completed",
                         code="initial-missing",
                         hint=f"trimaran resume {before}; it then queues this run")


def cancel(directories: list[Path], reporter: Reporter | None = None) -> list[str]:
    """Cancel the jobs of runs, and return the numbers of the jobs. Files of the runs remain.

    If an error occurs with one run, the jobs of the other runs are cancelled and reported before
    the error is raised.

    Raises:
        UsageError: a directory is not a submitted run, or no job is queued or running.
        RunError: the batch system refuses or does not answer, or the cancellation cannot be
            recorded in the run directory.
    """
    reporter = reporter or Silent()
    ended: list[str] = []
    faults: list[TrimaranError] = []
    for directory in directories:
        try:
            _end(directory, directories, ended, reporter)
        except TrimaranError as error:
            faults.append(error)
    if faults:
        for job in ended:
            reporter.note(f"job {job} cancelled")
        for fault in faults[1:]:
            reporter.warn(str(fault))
        raise faults[0]
    if not ended:
        places = ", ".join(map(str, directories))
        raise UsageError(f"no job of the run in {places} is queued or running",
                         code="job-not-found", hint="`trimaran status` shows the state of the run")
    return ended


def _end(
    directory: Path, directories: list[Path], ended: list[str], reporter: Reporter
) -> None:
    """Cancel the active jobs of a run, and append their numbers to `ended`.

    If a cancelled job also runs trainings that are not in `directories`, a note lists these. If the
    batch system does not report which jobs are active, the newest job is cancelled, because the
    cancellation has no effect on a job that has ended.
    """
    record = submitted(directory, chain=False)  # damaged links must not stop a cancellation
    scheduler = scheduler_of(record)
    with asking(scheduler, reporter):
        try:
            jobs = [job for job, _ in still_active(directory, record, scheduler)]
        except RunError as error:
            jobs = numbers(directory)[-1:]
            if not jobs:
                raise
            reporter.warn(f"{error}; job {jobs[0]} is cancelled without knowing its state")
        faults = []
        for job in jobs:
            if job in ended:  # a run that shares the job was cancelled before
                continue
            every_run = several.sharing(directory, record, job)
            others = [run for run in every_run[1:] if run not in directories]
            if others:
                reporter.note(f"job {job} ends for the other trainings, too: "
                              + ", ".join(map(str, others)))
            try:
                # Recorded before the cancellation: a job reads this file before it requeues itself.
                for run in every_run:
                    _note(run, CANCELLED, job)
            except (TrimaranError, OSError) as error:  # a full disk must not keep the job running
                faults.append(f"job {job} is cancelled, but this cannot be recorded: {error}")
            scheduler.cancel(job)
            ended.append(job)
    if faults:
        raise RunError("\n".join(faults), code="file-unwritable",
                       hint="`trimaran status` may show the state `lost` for the run")


def asking(
    scheduler: Scheduler, reporter: Reporter | None
) -> AbstractContextManager[object]:
    """Return a context manager that shows progress while a command of the batch system runs."""
    return (reporter or Silent()).bar(f"querying {scheduler.title}", None)


def submitted(directory: Path, *, chain: bool = True) -> RunRecord:
    """Return the record of a submitted run.

    If `chain` is true, status, times and nodes are added from the files of the run's jobs.

    Raises:
        UsageError: `directory` is not a run directory, or its run was not submitted.
    """
    record = run_directory.load(directory, chain=chain)
    if record.job is None:
        raise UsageError(f"the run in {directory} was not submitted: it ran on this machine",
                         code="run-not-submitted", hint=f"trimaran report {directory}")
    return record


def scheduler_of(record: RunRecord) -> Scheduler:
    """Return the batch system of a submitted run.

    Raises:
        UsageError: `run.json` names an unknown batch system.
    """
    name = record.job.scheduler if record.job else ""
    if name not in SCHEDULERS:
        raise UsageError(f"run.json: job.scheduler: unknown batch system '{name}'",
                         code="file-invalid",
                         hint=f"known batch systems: {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name]


def is_queueing(directory: Path) -> bool:
    """Return whether the queue may contain a job that the run has not recorded."""
    return (job_chain.place(directory) / QUEUEING).exists()


def every(directory: Path, record: RunRecord, scheduler: Scheduler) -> list[str]:
    """Return the numbers of all jobs of a run: recorded jobs, and jobs that are found by name.

    Raises:
        RunError: the batch system does not answer.
    """
    own = numbers(directory)
    names = [record.job.name, record.job.together] if record.job else []
    try:
        known = [number for name in names if name for number in scheduler.named(name)]
    except UsageError:  # PBS finds jobs by name with qselect, which may be missing
        if is_queueing(directory):
            raise
        known = []
    if not set(known) - set(own):
        return own
    return sorted({*own, *known}, key=_order)


def still_active(
    directory: Path, record: RunRecord, scheduler: Scheduler
) -> list[tuple[str, State]]:
    """Return the active jobs of a run with their states, the newest job first.

    The numbers of jobs that were found by their name are recorded in the run directory.

    Raises:
        RunError: the batch system does not answer.
    """
    own = every(directory, record, scheduler)
    known = scheduler.states(own) if own else {}
    active = [(job, known[job]) for job in reversed(own) if job in known and known[job].active]
    for job in own:
        if job in known and job not in numbers(directory):
            with suppress(OSError):
                _note(directory, QUEUED, job)
    return active


def queue(
    directories: Sequence[Path], name: str | None, scheduler: Scheduler, locks: Sequence[int]
) -> Submitted:
    """Queue a job, so that the job can be found even if this process is killed.

    Args:
        directories: the folder of the job, followed by the run directories of its trainings if
            the job runs several.
        name: name of the job.
        scheduler: the batch system.
        locks: descriptors of the locks of the runs, which the command of the batch system inherits,
            so that the runs stay locked if the command outlives this process.
    """
    directory = directories[0]
    for each in directories:
        intent = job_chain.place(each) / QUEUEING
        write_atomic(intent, f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}\n")
    way = (f"`trimaran status {directory}` shows whether the job was queued;"
           " `trimaran cancel` ends it")
    number = None
    try:
        with process.put_off():
            number = _taken(directory, name, scheduler, locks)
            for each in directories:
                if number not in numbers(each):
                    _note(each, QUEUED, number)
                (job_chain.place(each) / QUEUEING).unlink(missing_ok=True)
    except KeyboardInterrupt:
        if number is None:
            raise Interrupted(f"stopped by the user while {scheduler.title} accepted the job",
                              code="stopped", hint=way) from None
        raise Interrupted(f"stopped by the user; job {number} is queued", code="stopped",
                          hint=f"`trimaran cancel {directory}` ends it") from None
    return Submitted(directory, number)


def _taken(
    directory: Path, name: str | None, scheduler: Scheduler, locks: Sequence[int]
) -> str:
    """Queue a job, and return its number, which the command of the batch system prints.

    If the command fails although the job was queued, the job is found by its name.
    """
    try:
        return scheduler.submit(Path(SCRIPT), directory, locks)
    except RunError as error:
        # The command may fail although the job was queued: sbatch fails if its connection breaks
        # before the response.
        with suppress(TrimaranError):
            named = scheduler.named(name or "")
            known = scheduler.states(named) if named else {}
            if active := [number for number in named if number in known and known[number].active]:
                return max(active, key=_order)
        raise RunError(
            error.message, code=error.code,
            hint=error.hint or f"`trimaran status {directory}` shows whether the job was queued",
        ) from error


def _order(number: str) -> int:
    """Return the sort key of a job number: later jobs have higher numbers."""
    return int(re.split(r"\D", number)[0])


def _note(directory: Path, file: str, job: str) -> None:
    add_line(job_chain.place(directory) / file, job)


def _check_submitted(directory: Path, job: JobRecord) -> None:
    """Check that the job script and its `functions.sh` have not changed since the submission."""
    for name, digest in job_chain.submitted_files(job).items():
        path = directory / name
        try:
            content = read_plain(path)
        except FileNotFoundError:
            raise UsageError(f"{path} does not exist: the run was not submitted completely",
                             code="file-missing",
                             hint="submit the recipe again, with another --out") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise UsageError(f"{path} has changed since the run was submitted",
                             code="run-changed",
                             hint="submit the recipe again, with another --out")
