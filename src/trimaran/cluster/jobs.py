"""A recipe becomes a job: everything is made here, on the login node, and then queued."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran.cluster import script
from trimaran.cluster.scheduler import Scheduler, State
from trimaran.cluster.script import SCHEDULERS, SCRIPT, Job
from trimaran.data.dataset_json import DATASET
from trimaran.errors import UsageError
from trimaran.files import sha256, write_atomic
from trimaran.reporting import Reporter
from trimaran.runs import initial, inputs, links, pipeline, rundir, scaling
from trimaran.runs.pipeline import Request
from trimaran.runs.record import DataRecord, JobRecord, RunRecord
from trimaran.sites import Cluster, Site

STEPS = 3

QUEUED, CANCELLED = "ids", "cancelled"
"""Files with the numbers of jobs, beside the script: a batch system soon knows them no more."""


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
        out = rundir.new_directory(request.recipe, None, cluster.scratch)
    return replace(request, folders={**known, **request.folders}, out=out)


def preview(request: Request, cluster: Cluster) -> str:
    """Return the script that `submit` would queue; nothing is made, fetched or queued."""
    request = at_home(request, cluster)
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
    SCHEDULERS[cluster.scheduler].check()
    with rundir.claim(request.recipe, request.out) as (directory, _lock):
        request, data, built, used = pipeline.prepare(request, STEPS, reporter)
        job = Job(request, cluster, built, data, directory)
        text = script.render(job)
        with reporter.step(3, STEPS, f"job: {request.recipe.name}"):
            begun = JobRecord(scheduler=cluster.scheduler, cluster=name,
                              script_sha256=hashlib.sha256(text.encode()).hexdigest())
            rundir.start(
                directory, request.recipe, request.changes, used, data, job.command(),
                request.extension.modifications(), initial.record(request.initial), begun,
            )
            (directory / links.FOLDER).mkdir()
            write_atomic(directory / SCRIPT, text)
            (directory / "log.txt").touch()
            return _queue(directory, job.scheduler)


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
    folder = first.out or rundir.new_directory(
        replace(first.recipe, name=f"{name_of_all}/scaling"), None, cluster.scratch
    )
    places = scaling.begin(
        folder, name_of_all, [one.recipe.recipe.resources.nodes for one in requests]
    )
    for request in requests:
        place = places[request.recipe.recipe.resources.nodes]
        done = submit(replace(request, out=place), name, cluster, reporter)
        reporter.note(f"  job {done.job}: {place}")
    return folder


def again(directory: Path) -> Submitted:
    """Queue the job of a run that was stopped once more: it goes on from its newest checkpoint.

    Raises:
        UsageError: the run has come to its end, or its job has not ended.
        RunError: the batch system refuses the job.
    """
    directory = directory.absolute()
    record = rundir.load(directory)
    scheduler = scheduler_of(record)
    scheduler.check()
    if record.status == "completed":
        raise UsageError(f"the run in {directory} has come to its end",
                         hint=f"trimaran report {directory} judges it")
    with rundir.alone(directory):
        if active := still_active(directory, scheduler):
            job, state = active
            raise UsageError(f"job {job} of the run in {directory} is {state.name}",
                             hint=f"trimaran cancel {directory} ends it")
        text = (directory / SCRIPT).read_bytes()
        if record.job is None or hashlib.sha256(text).hexdigest() != record.job.script_sha256:
            raise UsageError(f"{directory / SCRIPT} has changed since the run was submitted")
        return _queue(directory, scheduler)


def cancel(directories: list[Path]) -> list[str]:
    """End the jobs of runs and return their numbers; what the runs have written stays.

    Raises:
        UsageError: one is no submitted run, or none of them has a job that has not ended.
        RunError: the batch system refuses.
    """
    ended = []
    for directory in directories:
        scheduler = scheduler_of(submitted(directory))
        if active := still_active(directory, scheduler):
            # Noted first: a job that is just being queued once more looks there (job.sh.j2).
            _note(directory, CANCELLED, active[0])
            scheduler.cancel(active[0])
            ended.append(active[0])
    if not ended:
        places = ", ".join(map(str, directories))
        raise UsageError(f"no job of the run in {places} is queued or running",
                         hint="trimaran status says how it stands")
    return ended


def submitted(directory: Path) -> RunRecord:
    """Return the record of a submitted run; UsageError where it is none."""
    record = rundir.load(directory)
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
    try:
        return (directory / links.FOLDER / file).read_text().split()
    except FileNotFoundError:
        return []


def still_active(directory: Path, scheduler: Scheduler) -> tuple[str, State] | None:
    """Return the newest job of a run that has not ended, and its state."""
    own = numbers(directory)
    known: Mapping[str, State] = scheduler.states(own)
    return next(
        ((job, known[job]) for job in reversed(own) if job in known and known[job].active), None
    )


def _queue(directory: Path, scheduler: Scheduler) -> Submitted:
    job = scheduler.submit(Path(SCRIPT), directory)
    _note(directory, QUEUED, job)
    return Submitted(directory, job)


def _note(directory: Path, file: str, job: str) -> None:
    with (directory / links.FOLDER / file).open("a") as noted:
        noted.write(f"{job}\n")


def _digest(path: Path) -> str:
    """Return the SHA-256 of a data set's description; what is not there yet has none."""
    description = path / DATASET
    return sha256(description) if description.is_file() else "0" * 64
