"""Submit a recipe as a job: prepare its data, image and script on the login node, and queue it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from shards.description import DATASET
from trimaran import process
from trimaran.cluster import script, several
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import FUNCTIONS, SCHEDULERS, SCRIPT, Job
from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError
from trimaran.files import add_line, read_plain, sha256, touch_plain, write_atomic
from trimaran.launch.specification import quote
from trimaran.report import scaling
from trimaran.reporting import Reporter, Silent
from trimaran.run import inputs, job_chain, pipeline, run_directory
from trimaran.run.job_chain import CANCELLED, QUEUED, numbers
from trimaran.run.pipeline import Request
from trimaran.run.record import DataRecord, ImageRecord, JobRecord, RunRecord
from trimaran.site_file import Cluster, Site

STEPS = 3

QUEUEING = "queueing"
"""Name of a file beside the script, which exists until the number of a new job is recorded.

If the process is killed before, the file remains. It shows that the queue may contain a job whose
number is not recorded, and which can be found only by its name.
"""


@dataclass(frozen=True)
class Submitted:
    """A job in the queue of the batch system: its run directory and its number."""

    directory: Path
    job: str


def choose(site: Site, name: str | None) -> tuple[str, Cluster]:
    """Return the name and the facts of a cluster in the site file.

    Args:
        site: the site file.
        name: name of the cluster; None: the first cluster, or Slurm with all defaults if the site
            file defines no cluster.

    Raises:
        UsageError: the site file has no cluster of this name.
    """
    if name is None:
        return next(iter(site.clusters.items()), ("slurm", Cluster()))
    if name not in site.clusters:
        known = ", ".join(site.clusters) or "none"
        raise UsageError(f"the site file defines no cluster '{name}', only: {known}",
                         code="name-unknown", hint="`trimaran site show` prints the site file")
    return name, site.clusters[name]


def at_home(request: Request, cluster: Cluster) -> Request:
    """Add the data sets and the scratch folder of the cluster to the request, and return it.

    Data sets and a run directory that the request already contains are kept.
    """
    known = {
        name: cluster.data / name
        for name in request.recipe.recipe.data
        if cluster.data is not None and (cluster.data / name).exists()
    }
    out = request.out
    if out is None and cluster.scratch is not None:
        out = run_directory.new_directory(request.recipe, None, cluster.scratch)
    return replace(request, folders={**known, **request.folders}, out=out)


def check(request: Request, cluster: Cluster) -> None:
    """Check the recipe, its arguments and the run directory, without preparing anything.

    Raises:
        UsageError: the recipe cannot run, or the batch system cannot use the run directory.
    """
    request = at_home(request, cluster)
    pipeline.check(request)
    check_place(request.out, cluster)


def preview(request: Request, cluster: Cluster) -> str:
    """Return the script that `submit` would queue, without making or queueing anything.

    Raises:
        UsageError: the recipe cannot be a job, or the batch system cannot use the run directory.
    """
    request = at_home(request, cluster)
    check_place(request.out, cluster)
    job, missing = plan(request, cluster)
    return with_missing(script.render(job), missing)


def plan(request: Request, cluster: Cluster) -> tuple[Job, tuple[str, ...]]:
    """Return the job that `submit` would queue, and the steps that must be done before.

    Raises:
        UsageError: the request is invalid.
    """
    planned = pipeline.plan(request)
    request = replace(request, initial=planned.initial)
    data = [
        DataRecord(name=name, path=str(path), sha256=_digest(path))
        for name, path in inputs.places(request.recipe, request.folders).items()
    ]
    return Job(request, cluster, planned.built, data, planned.directory), planned.missing


def with_missing(text: str, missing: Sequence[str], place: Path | None = None) -> str:
    """Return the script `text` with a comment for each step that must be done before.

    If several scripts are printed, another comment names the run directory `place` of this script.
    """
    shebang, _, rest = text.partition("\n")
    file = [] if place is None else [f"# file: {quote(place / SCRIPT)}"]
    return "\n".join([shebang, *file, *(f"# first: {what}" for what in missing), rest])


def submit(request: Request, name: str, cluster: Cluster, reporter: Reporter) -> Submitted:
    """Prepare the data and the image, create the run directory, and queue the job.

    Raises:
        UsageError: the recipe cannot be a job of this cluster, or a command of the batch system is
            not on PATH.
        BuildError: the image cannot be built or fetched.
        RunError: the data cannot be prepared, or the batch system refuses the job.
    """
    request = at_home(request, cluster)
    check(request, cluster)
    SCHEDULERS[cluster.scheduler].check()
    with run_directory.claim(request.recipe, request.out) as (directory, lock):
        job, used = prepare(request, cluster, directory, reporter)
        with reporter.step(3, STEPS, f"job: {request.recipe.name}"):
            begun = write(job, used, name)
            return queue([directory], begun.name, job.scheduler, [lock])


def prepare(
    request: Request, cluster: Cluster, directory: Path, reporter: Reporter
) -> tuple[Job, ImageRecord]:
    """Prepare the data and the image of a run; return its job, and the image for `run.json`.

    Raises:
        BuildError: the image cannot be built or fetched.
        RunError: the data cannot be prepared.
    """
    request, data, built, used = pipeline.prepare(request, STEPS, reporter)
    return Job(request, cluster, built, data, directory), used


def write(job: Job, used: ImageRecord, cluster: str) -> JobRecord:
    """Write the record and the script of a run into its run directory, and return its submission.

    Args:
        job: the job of the run.
        used: the image, as `run.json` records it.
        cluster: name of the cluster in the site file.
    """
    request, text = job.request, script.render(job)
    begun = JobRecord(
        scheduler=job.cluster.scheduler, cluster=cluster, name=job.name, together=job.together,
        before=None if job.before is None else str(job.before), **digests(text),
    )
    initial = inputs.initial_record(request.initial, to_come=request.to_come)
    run_directory.start(
        job.directory, request.recipe, request.changes, used, job.data, job.launch(),
        request.extension.modifications(), initial, job.site_settings(), begun,
    )
    write_script(job.directory, text)
    return begun


def write_script(directory: Path, text: str) -> None:
    """Write the script of a job, its functions and an empty log into `directory`."""
    (directory / job_chain.FOLDER).mkdir()
    write_atomic(directory / FUNCTIONS, script.functions())
    write_atomic(directory / SCRIPT, text)
    touch_plain(directory / "log.txt")


def digests(text: str) -> dict[str, str]:
    """Return the entries of a record for the script of a job with its functions."""
    files = {"script_sha256": text, "functions_sha256": script.functions()}
    return {name: hashlib.sha256(file.encode()).hexdigest() for name, file in files.items()}


def submit_series(
    requests: list[Request], name: str, cluster: Cluster, reporter: Reporter
) -> Path:
    """Queue one job for each request of a scaling series, and return the folder of the series.

    A Slurm array cannot do this: all its tasks have the same number of nodes.

    Raises:
        UsageError, BuildError, RunError: as in `submit`. Jobs that are already queued stay queued.
    """
    first = requests[0]
    name_of_all = first.recipe.name.partition("@")[0]
    folder = first.out or run_directory.new_directory(
        replace(first.recipe, name=f"{name_of_all}/scaling"), None, cluster.scratch
    )
    check_place(folder, cluster)
    places = scaling.begin(
        folder, name_of_all, [request.recipe.recipe.resources.nodes for request in requests]
    )
    for request in requests:
        place = places[request.recipe.recipe.resources.nodes]
        done = submit(replace(request, out=place), name, cluster, reporter)
        reporter.note(f"  job {done.job}: {place}")
    return folder


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
    """Check that the run from which this one starts has completed."""
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

    A note names other runs than `directories` that share a job. If the batch system does not report
    which jobs are active, the newest job is cancelled: cancelling a job that has ended has no
    effect.
    """
    record = submitted(directory, chain=False)  # damaged links must not prevent it
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
                # Recorded first: a job that requeues itself reads this file (functions.sh).
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
    """Return a context that shows progress while a command of the batch system runs."""
    return (reporter or Silent()).bar(f"querying {scheduler.title}", None)


def submitted(directory: Path, *, chain: bool = True) -> RunRecord:
    """Return the record of a submitted run; `chain` is as in `run_directory.load`.

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
    """Return whether the queue may contain a job of the run whose number is not recorded."""
    return (job_chain.place(directory) / QUEUEING).exists()


def every(directory: Path, record: RunRecord, scheduler: Scheduler) -> list[str]:
    """Return the numbers of all jobs of a run: recorded jobs, and jobs that their name identifies.

    Raises:
        RunError: the batch system does not answer.
    """
    own = numbers(directory)
    names = [record.job.name, record.job.together] if record.job else []
    try:
        known = [number for name in names if name for number in scheduler.named(name)]
    except UsageError:  # PBS needs qselect to find names, and it may be missing
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


def check_place(out: Path | None, cluster: Cluster) -> None:
    """Check that the batch system uses the path of the run directory unchanged."""
    scheduler, directory = SCHEDULERS[cluster.scheduler], (out or Path.cwd()).absolute()
    for read in scheduler.reads:
        if read in str(directory):
            raise UsageError(
                f"{directory}: {scheduler.title} replaces {read} in the path of a run directory,"
                " and could not write the output of the job there",
                code="scheduler-unsupported",
                hint=f"choose another --out (or scratch in the site file), without {read}",
            )


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

    If the command fails although the job was queued, the job's name identifies it.
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
    """Check that the script and the functions of a run are those that were submitted."""
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


def _digest(path: Path) -> str:
    """Return the SHA-256 of the `dataset.json` of a data set; zeros if the data set is missing."""
    description = path / DATASET
    return sha256(description) if description.is_file() else "0" * 64
