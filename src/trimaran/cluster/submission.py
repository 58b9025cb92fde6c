"""Submit a recipe as a job: prepare its data, image and script on the login node, and queue it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shards.description import DATASET
from trimaran.cluster import jobs, script
from trimaran.cluster.jobs import Submitted
from trimaran.cluster.script import FUNCTIONS, SCHEDULERS, SCRIPT, Job
from trimaran.errors import UsageError
from trimaran.files import sha256, touch_plain, write_atomic
from trimaran.launch.specification import quote
from trimaran.report import scaling
from trimaran.reporting import Reporter, Silent
from trimaran.run import inputs, job_chain, machines, pipeline, run_directory
from trimaran.run.image import check_pin, foreign_image
from trimaran.run.record import DataRecord, ImageRecord, JobRecord
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

STEPS = 3


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
    """Add the data sets, the scratch folder and the architecture of the cluster to the request.

    Return the new request. Data sets and a run directory that it already contains are kept.
    """
    known = {
        name: cluster.data / name
        for name in request.recipe.recipe.data
        if cluster.data is not None and (cluster.data / name).exists()
    }
    out = request.out
    if out is None and cluster.scratch is not None:
        out = run_directory.new_directory(request.recipe, None, cluster.scratch)
    nodes_have = machines.architecture(
        request.recipe.recipe, cluster.architecture, here=False
    )
    return replace(request, folders={**known, **request.folders}, out=out, architecture=nodes_have)


def check(request: Request, cluster: Cluster) -> None:
    """Check the recipe, its arguments and the run directory, without preparing anything.

    Raises:
        UsageError: the recipe cannot run, or the batch system cannot use the run directory.
    """
    request = at_home(request, cluster)
    check_recipe(request)
    check_place(request.out, cluster)


def check_recipe(request: Request) -> None:
    """Check a request that `at_home` returned: its recipe, its arguments and its architecture.

    Raises:
        UsageError: the recipe cannot run, or no image is made for the processors of the nodes.
        RunError: the digest that the recipe pins is that of an image for another architecture.
    """
    if request.architecture is None:
        raise machines.unsupported(request.recipe.name, request.recipe.recipe)
    pipeline.check(request)
    _ = request.image  # loading it fails if none is made for the processors of the nodes
    check_pin(request)


def check_image(request: Request) -> None:
    """Check that the image for nodes of another architecture is on this machine, or is pulled.

    This is checked before the data are prepared, which may take hours.

    Raises:
        BuildError: it is not.
    """
    if request.pinned is None:
        foreign_image(request, Silent(), thorough=False)


def check_place(out: Path | None, cluster: Cluster) -> None:
    """Check that the path of the run directory has no pattern that the batch system replaces.

    An example is `%j`, for which Slurm puts the number of the job.
    """
    scheduler, directory = SCHEDULERS[cluster.scheduler], (out or Path.cwd()).absolute()
    for read in scheduler.reads:
        if read in str(directory):
            raise UsageError(
                f"{directory}: {scheduler.title} replaces {read} in the path of a run directory,"
                " and could not write the output of the job there",
                code="scheduler-unsupported",
                hint=f"choose another --out (or scratch in the site file), without {read}",
            )


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
    """Return the job that `submit` would queue, and the steps that are needed before this job.

    Raises:
        UsageError: the request is invalid.
    """
    planned = pipeline.plan(request)
    request = replace(request, initial=planned.initial)
    data = [
        DataRecord(name=name, path=str(path), sha256=_digest(path))
        for name, path in inputs.places(request.recipe, request.folders).items()
    ]
    missing = planned.missing
    if request.architecture is None:
        fault = machines.unsupported(request.recipe.name, request.recipe.recipe)
        missing = (*missing, f"{fault.message}; {fault.hint}")
    return Job(request, cluster, planned.built, data, planned.directory), missing


def with_missing(text: str, missing: Sequence[str], place: Path | None = None) -> str:
    """Return the script `text` with a comment for each step that is needed before the job.

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
    check_image(request)
    SCHEDULERS[cluster.scheduler].check()
    with run_directory.claim(request.recipe, request.out) as (directory, lock):
        job, used = prepare(request, cluster, directory, reporter)
        with reporter.step(3, STEPS, f"job: {request.recipe.name}"):
            begun = write(job, used, name)
            return jobs.queue([directory], begun.name, job.scheduler, [lock])


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
    """Write the record and the script of a run into the run directory; return the job's record.

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
    """Write the script of a job, its `functions.sh` and an empty log into `directory`."""
    (directory / job_chain.FOLDER).mkdir()
    write_atomic(directory / FUNCTIONS, script.functions())
    write_atomic(directory / SCRIPT, text)
    touch_plain(directory / "log.txt")


def digests(text: str) -> dict[str, str]:
    """Return the SHA-256 of a job's script and of its `functions.sh`, by field of a `JobRecord`."""
    files = {"script_sha256": text, "functions_sha256": script.functions()}
    return {name: hashlib.sha256(file.encode()).hexdigest() for name, file in files.items()}


def submit_series(
    requests: Sequence[Request], name: str, cluster: Cluster, reporter: Reporter
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


def _digest(path: Path) -> str:
    """Return the SHA-256 of the `dataset.json` of a data set; zeros if the data set is missing."""
    description = path / DATASET
    return sha256(description) if description.is_file() else "0" * 64
