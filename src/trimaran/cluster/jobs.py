"""A recipe becomes a job: everything is made here, on the login node, and then queued."""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from shards.description import DATASET
from trimaran import process
from trimaran.cluster import script
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import FUNCTIONS, SCHEDULERS, SCRIPT, Job
from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError
from trimaran.files import add_line, read_plain, sha256, touch_plain, write_atomic
from trimaran.report import scaling
from trimaran.reporting import Reporter, Silent
from trimaran.run import initial, inputs, job_chain, pipeline, run_directory
from trimaran.run.job_chain import CANCELLED, QUEUED
from trimaran.run.pipeline import Request
from trimaran.run.record import DataRecord, JobRecord, RunRecord
from trimaran.site_file import Cluster, Site

STEPS = 3

QUEUEING = "queueing"
"""A file beside the script: a job is being queued, whose number nobody has written down yet.

Who was killed at that moment has left it. The job, if there is one, is found by its name.
"""


@dataclass(frozen=True)
class Submitted:
    """A job that is queued."""

    directory: Path
    job: str


def choose(site: Site, name: str | None) -> tuple[str, Cluster]:
    """Return the cluster called `name` in the site file, or its first; Slurm as it is, if none.

    Raises:
        UsageError: there is no such.
    """
    if name is None:
        return next(iter(site.clusters.items()), ("slurm", Cluster()))
    if name not in site.clusters:
        known = ", ".join(site.clusters) or "none"
        raise UsageError(f"the site file has no cluster '{name}': {known}",
                         hint="trimaran site show prints it")
    return name, site.clusters[name]


def at_home(request: Request, cluster: Cluster) -> Request:
    """Return the request with the cluster's own data sets, where none are given, and run folder."""
    known = {
        name: cluster.data / name
        for name in request.recipe.recipe.data
        if cluster.data is not None and (cluster.data / name).exists()
    }
    out = request.out
    if out is None and cluster.scratch is not None:
        out = run_directory.new_directory(request.recipe, None, cluster.scratch)
    return replace(request, folders={**known, **request.folders}, out=out)


def preview(request: Request, cluster: Cluster) -> str:
    """Return the script that `submit` would queue; nothing is made, fetched or queued."""
    request = at_home(request, cluster)
    _check_place(request.out, cluster)
    planned = pipeline.plan(request)
    request = replace(request, initial=planned.initial)
    data = [
        DataRecord(name=name, path=str(path), sha256=_digest(path))
        for name, path in inputs.places(request.recipe, request.folders).items()
    ]
    text = script.render(Job(request, cluster, planned.built, data, planned.directory))
    shebang, _, rest = text.partition("\n")
    return "\n".join([shebang, *(f"# first: {what}" for what in planned.missing), rest])


def submit(request: Request, name: str, cluster: Cluster, reporter: Reporter) -> Submitted:
    """Prepare data and image, make the run directory, and queue the job.

    Raises:
        UsageError: the recipe cannot be run so.
        BuildError, RunError: image or data could not be had, or the batch system refuses the job.
    """
    request = at_home(request, cluster)
    pipeline.check(request)
    _check_place(request.out, cluster)
    SCHEDULERS[cluster.scheduler].check()
    with run_directory.claim(request.recipe, request.out) as (directory, lock):
        request, data, built, used = pipeline.prepare(request, STEPS, reporter)
        job = Job(request, cluster, built, data, directory)
        text, functions = script.render(job), script.functions()
        with reporter.step(3, STEPS, f"job: {request.recipe.name}"):
            begun = JobRecord(scheduler=cluster.scheduler, cluster=name,
                              script_sha256=hashlib.sha256(text.encode()).hexdigest(),
                              functions_sha256=hashlib.sha256(functions.encode()).hexdigest(),
                              name=job.name)
            run_directory.start(
                directory, request.recipe, request.changes, used, data, job.launch(),
                request.extension.modifications(), initial.record(request.initial),
                job.site_settings(), begun,
            )
            (directory / job_chain.FOLDER).mkdir()
            write_atomic(directory / FUNCTIONS, functions)
            write_atomic(directory / SCRIPT, text)
            touch_plain(directory / "log.txt")
            return _queue(directory, begun, job.scheduler, lock)


def submit_series(
    requests: list[Request], name: str, cluster: Cluster, reporter: Reporter
) -> Path:
    """Queue a job for each of the requests, which differ in their nodes; return their folder.

    A job each: the tasks of a Slurm array all have the same number of nodes.

    Raises:
        UsageError, BuildError, RunError: as `submit`; the jobs that were queued before stay.
    """
    first = requests[0]
    name_of_all = first.recipe.name.partition("@")[0]
    folder = first.out or run_directory.new_directory(
        replace(first.recipe, name=f"{name_of_all}/scaling"), None, cluster.scratch
    )
    _check_place(folder, cluster)
    places = scaling.begin(
        folder, name_of_all, [one.recipe.recipe.resources.nodes for one in requests]
    )
    for request in requests:
        place = places[request.recipe.recipe.resources.nodes]
        done = submit(replace(request, out=place), name, cluster, reporter)
        reporter.note(f"  job {done.job}: {place}")
    return folder


def again(directory: Path, reporter: Reporter | None = None) -> Submitted:
    """Queue the job of a run that was stopped once more: it goes on from its newest checkpoint.

    Raises:
        UsageError: the run has come to its end, or its job has not ended.
        RunError: the batch system does not answer, or refuses the job.
    """
    directory = directory.absolute()
    record = submitted(directory)
    scheduler = scheduler_of(record)
    scheduler.check()
    if record.status == "completed":
        raise UsageError(f"the run in {directory} has come to its end",
                         hint=f"trimaran report {directory} judges it")
    with run_directory.alone(directory) as lock, asking(scheduler, reporter):
        run_directory.refuse_foreign(directory)
        if active := still_active(directory, record, scheduler):
            job, state = active[0]
            raise UsageError(f"job {job} of the run in {directory} is {state.name}",
                             hint=f"trimaran cancel {directory} ends it")
        assert record.job is not None  # noqa: S101 - `submitted` refuses None
        _check_submitted(directory, record.job)
        return _queue(directory, record.job, scheduler, lock)


def cancel(directories: list[Path], reporter: Reporter | None = None) -> list[str]:
    """End the jobs of runs and return their numbers; what the runs have written stays.

    Raises:
        UsageError: one is no submitted run, or none of them has a job that has not ended.
        RunError: the batch system refuses or does not answer, or that a job is cancelled cannot be
            noted. The jobs of the other runs have been ended, and told.
    """
    reporter = reporter or Silent()
    ended: list[str] = []
    faults: list[TrimaranError] = []
    for directory in directories:
        try:
            _end(directory, ended, reporter)
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
                         hint="trimaran status says how it stands")
    return ended


def _end(directory: Path, ended: list[str], reporter: Reporter) -> None:
    """End the jobs of a run that have not ended, and add their numbers to `ended`.

    Where the batch system does not tell which those are, it is the newest: a job that has ended
    can be ended once more.
    """
    record = submitted(directory, chain=False)  # nothing that its jobs have left is needed
    scheduler = scheduler_of(record)
    with asking(scheduler, reporter):
        try:
            jobs = [job for job, _ in still_active(directory, record, scheduler)]
        except RunError as error:
            jobs = numbers(directory)[-1:]
            if not jobs:
                raise
            reporter.warn(f"{error}; job {jobs[0]} is ended, whether it has ended or not")
        faults = []
        for job in jobs:
            try:
                # Noted first: a job that is just being queued once more looks there (functions.sh).
                _note(directory, CANCELLED, job)
            except (TrimaranError, OSError) as error:  # on a full disk a job can be ended, too
                faults.append(f"job {job} is cancelled, which cannot be noted: {error}")
            scheduler.cancel(job)
            ended.append(job)
    if faults:
        raise RunError("\n".join(faults), hint="its state may be told as that of a lost job")


def asking(
    scheduler: Scheduler, reporter: Reporter | None
) -> AbstractContextManager[object]:
    """Show that a batch system is asked, where that takes long."""
    return (reporter or Silent()).bar(f"asking {scheduler.title}", None)


def submitted(directory: Path, *, chain: bool = True) -> RunRecord:
    """Return the record of a submitted run.

    Raises:
        UsageError: `directory` is not the run directory of a job; or see `run_directory.load`.
    """
    record = run_directory.load(directory, chain=chain)
    if record.job is None:
        raise UsageError(f"the run in {directory} was not submitted: it ran on this machine",
                         hint=f"trimaran report {directory}")
    return record


def scheduler_of(record: RunRecord) -> Scheduler:
    """Return the batch system of a submitted run."""
    name = record.job.scheduler if record.job else ""
    if name not in SCHEDULERS:
        raise UsageError(f"run.json: job: no batch system is called '{name}'")
    return SCHEDULERS[name]


def numbers(directory: Path, file: str = QUEUED) -> list[str]:
    """Return the numbers of the jobs of a run, the newest last: QUEUED, or CANCELLED here."""
    return job_chain.numbers(directory, file)


def is_queueing(directory: Path) -> bool:
    """Return whether a job may be there whose number is not written down."""
    return (job_chain.place(directory) / QUEUEING).exists()


def every(directory: Path, record: RunRecord, scheduler: Scheduler) -> list[str]:
    """Return the numbers of the jobs of a run, and of those that the batch system knows by name.

    Raises:
        RunError: it does not answer.
    """
    own, name = numbers(directory), record.job.name if record.job else None
    try:
        known = scheduler.named(name) if name else []
    except UsageError:  # PBS has a program of its own for that
        if is_queueing(directory):
            raise
        known = []
    if not set(known) - set(own):
        return own
    return sorted({*own, *known}, key=_order)


def still_active(
    directory: Path, record: RunRecord, scheduler: Scheduler
) -> list[tuple[str, State]]:
    """Return the jobs of a run that have not ended, the newest first, and their states.

    Those whose numbers are not written down are, now.

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


def _check_place(out: Path | None, cluster: Cluster) -> None:
    """Refuse a run directory, by default below this one, in which the batch system replaces parts.

    Raises:
        UsageError: names them.
    """
    scheduler, directory = SCHEDULERS[cluster.scheduler], (out or Path.cwd()).absolute()
    for read in scheduler.reads:
        if read in str(directory):
            raise UsageError(
                f"{directory}: {scheduler.title} reads {read} in the path of a run directory as"
                " its own, and could not write there what the job says",
                hint=f"choose another --out (or scratch in the site file), without {read}",
            )


def _queue(directory: Path, job: JobRecord, scheduler: Scheduler, lock: int) -> Submitted:
    """Queue the job of a run, so that whoever is killed meanwhile leaves what leads to it.

    Args:
        lock: of the run; the batch system's command keeps it, also when it outlives this process.

    Raises:
        RunError: the batch system refuses the job, or does not say what became of it.
        Interrupted: stopped by the user.
    """
    intent = job_chain.place(directory) / QUEUEING
    write_atomic(intent, f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}\n")
    way = f"trimaran status {directory} says whether it is there, trimaran cancel ends it"
    number = None
    try:
        with process.put_off():
            number = _taken(directory, job, scheduler, lock)
            if number not in numbers(directory):
                _note(directory, QUEUED, number)
            intent.unlink(missing_ok=True)
    except KeyboardInterrupt:
        if number is None:
            raise Interrupted(f"stopped by the user while {scheduler.title} took the job",
                              hint=way) from None
        raise Interrupted(f"stopped by the user; job {number} is queued",
                          hint=f"trimaran cancel {directory} ends it") from None
    return Submitted(directory, number)


def _taken(directory: Path, job: JobRecord, scheduler: Scheduler, lock: int) -> str:
    """Queue a job and return its number: as it is told, else that of the active job of its name."""
    try:
        return scheduler.submit(Path(SCRIPT), directory, (lock,))
    except RunError as error:
        # A command may fail, or say what nobody reads, though the job is there: sbatch does so
        # where its connection breaks before the answer.
        with suppress(TrimaranError):
            known = scheduler.states(found) if (found := scheduler.named(job.name or "")) else {}
            if active := [one for one in found if one in known and known[one].active]:
                return max(active, key=_order)
        raise RunError(
            error.message,
            hint=error.hint or f"trimaran status {directory} says whether the job is there",
        ) from error


def _order(number: str) -> int:
    """Return by what the numbers of jobs are ordered: later jobs have higher ones."""
    return int(re.split(r"\D", number)[0])


def _note(directory: Path, file: str, job: str) -> None:
    add_line(job_chain.place(directory) / file, job)


def _check_submitted(directory: Path, job: JobRecord) -> None:
    """Make sure that a job that is queued now reads what was submitted.

    Raises:
        UsageError: a file is not there, is no plain file, or has changed.
    """
    for name, digest in job_chain.submitted_files(job).items():
        path = directory / name
        try:
            content = read_plain(path)
        except FileNotFoundError:
            raise UsageError(f"{path} is not there: the run was not submitted completely",
                             hint="submit it again, into another folder") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise UsageError(f"{path} has changed since the run was submitted",
                             hint="submit the recipe again, into another folder")


def _digest(path: Path) -> str:
    """Return the SHA-256 of a data set's description; what is not there yet has none."""
    description = path / DATASET
    return sha256(description) if description.is_file() else "0" * 64
