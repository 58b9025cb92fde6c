"""Submit independent trainings as one job: each gets an equal share of the cores of one node."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trimaran.cluster import jobs, script, several, submission
from trimaran.cluster.jobs import Submitted
from trimaran.cluster.scheduler import Scheduler, Shape
from trimaran.cluster.script import SCHEDULERS, Job
from trimaran.cluster.several import TOGETHER, Runs
from trimaran.cluster.submission import STEPS
from trimaran.errors import UsageError
from trimaran.launch.specification import quote
from trimaran.recipes import targets
from trimaran.reporting import Reporter
from trimaran.run.request import Request
from trimaran.site_file import Cluster


def check(requests: Sequence[Request]) -> None:
    """Check that the recipes can share one node.

    Raises:
        UsageError: there is only one training, two trainings are the same, a training has several
            tasks or GPUs, or a node of a target has too few cores or GPUs for all of them.
    """
    if len(requests) < 2:
        raise UsageError("--together needs at least two trainings", code="arguments-conflict",
                         hint="name more recipes, or give --seeds 1,2")
    known: list[tuple[str, object]] = []
    for request in requests:
        name, resources = request.recipe.name, request.recipe.recipe.resources
        if (name, request.changes) in known:
            raise UsageError(f"{name} is named twice with the same arguments",
                             code="run-repeated", hint="--seeds 1,2 trains it with two seeds")
        known.append((name, request.changes))
        if resources.nodes * resources.tasks_per_node > 1 or resources.gpus_per_task > 1:
            raise UsageError(
                f"--together: {name} needs {resources.nodes} nodes, {resources.tasks_per_node}"
                f" tasks per node and {resources.gpus_per_node} GPUs per node; a training that"
                " shares a node has one task and at most one GPU",
                code="recipe-unsupported", hint=f"submit it alone: trimaran submit {name}",
            )
    _check_size(requests)


def _check_size(requests: Sequence[Request]) -> None:
    """Check that a node of each target has enough cores and GPUs for all trainings.

    A target such as `cpu-2core` or `a100x1` is not checked if one training uses all its cores or
    GPUs, because the target then describes the share of a training, not a node. A target that lists
    sockets always describes a node.
    """
    whole = shape(requests)
    for request in requests:
        target, own = request.recipe.recipe.target, request.recipe.recipe.resources
        node = targets.load(target).node
        few = []
        is_node = node.sockets is not None or own.cpus_per_task < (node.cores or 0)
        if node.cores is not None and is_node and whole.cpus_per_task > node.cores:
            few.append(f"{whole.cpus_per_task} cores, but a node of {target} has {node.cores}")
        if node.accelerators > own.gpus_per_task and whole.gpus_per_node > node.accelerators:
            few.append(f"{whole.gpus_per_node} GPUs, but a node of {target} has"
                       f" {node.accelerators}")
        if few:
            raise UsageError(f"--together: {len(requests)} trainings need {' and '.join(few)}",
                             code="node-too-small", hint="submit fewer trainings together")


def shape(requests: Sequence[Request]) -> Shape:
    """Return the resources of the job: one task with the cores and GPUs of all trainings.

    Every training gets the same number of cores: the largest number in the recipes. The time limit
    of the job is the longest time limit in the recipes.
    """
    wanted = [request.recipe.recipe.resources for request in requests]
    return Shape(
        nodes=1, tasks_per_node=1,
        cpus_per_task=len(wanted) * max(one.cpus_per_task for one in wanted),
        gpus_per_node=sum(one.gpus_per_task for one in wanted),
        walltime=max((one.walltime for one in wanted), key=script.seconds),
    )


def job_name(folder: Path, scheduler: Scheduler) -> str:
    """Return the name of the shared job, which identifies it by a hash of its folder."""
    place = hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]
    return scheduler.called(f"{TOGETHER}-{place}")


def render(members: Sequence[Job], folder: Path) -> str:
    """Return the script of the one job that runs the trainings of all `members`.

    The job works in `folder`.

    Raises:
        UsageError: the batch system does not support a setting.
    """
    cluster, scheduler = members[0].cluster, members[0].scheduler
    return script.fill(
        scheduler, cluster, shape([job.request for job in members]), job_name(folder, scheduler),
        folder, recipe=f"{len(members)} trainings on one node",
        trainings=[(job.recipe.resources.gpus_per_task, quote(job.directory)) for job in members],
    )


def preview(requests: Sequence[Request], cluster: Cluster) -> str:
    """Return the scripts that `submit` would write, without making or queueing anything.

    Raises:
        UsageError: the recipes cannot share a job, or one of them cannot be a job.
    """
    check(requests)
    folder = several.folder(requests, TOGETHER, cluster)
    submission.check_place(folder, cluster)
    placed = _placed(requests, folder, cluster)
    planned = [submission.plan(request, cluster) for request in placed]
    texts = [submission.with_missing(render([job for job, _ in planned], folder), [], folder)]
    texts += [submission.with_missing(script.render(job), missing, job.directory)
              for job, missing in planned]
    return "\n".join(texts)


def submit(
    requests: Sequence[Request], name: str, cluster: Cluster, reporter: Reporter
) -> Submitted:
    """Prepare all data and images, create the run directories, and queue one job for all.

    Raises:
        UsageError: the recipes cannot share a job, one of them cannot be a job of this cluster, or
            a command of the batch system is not on PATH.
        BuildError: an image cannot be built or fetched.
        RunError: data cannot be prepared, or the batch system refuses the job.
    """
    check(requests)
    folder = several.folder(requests, TOGETHER, cluster)
    submission.check_place(folder, cluster)
    placed = _placed(requests, folder, cluster)
    for request in placed:
        submission.check_recipe(request)
        submission.check_image(request)
    scheduler = SCHEDULERS[cluster.scheduler]
    scheduler.check()
    title = job_name(folder, scheduler)
    with several.claimed(placed) as locks:
        ready = []
        for request, place in zip(placed, several.places(folder, requests), strict=True):
            job, used = submission.prepare(request, cluster, place, reporter)
            ready.append((replace(job, together=title), used))
        text = render([job for job, _ in ready], folder)
        for job, _ in ready:
            script.render(job)  # all faults before the first file
        with reporter.step(3, STEPS, f"job: {len(ready)} trainings"):
            for job, used in ready:
                submission.write(job, used, name)
            runs = [job.directory.name for job, _ in ready]
            several.write(folder, TOGETHER, Runs(runs=runs, **submission.digests(text)))
            submission.write_script(folder, text)
            return jobs.queue([folder, *(job.directory for job, _ in ready)], title, scheduler,
                              locks)


def _placed(requests: Sequence[Request], folder: Path, cluster: Cluster) -> list[Request]:
    """Return copies of the requests in which the run directory is set to a folder below `folder`.

    The data sets and the architecture of the cluster are set, too.
    """
    places = several.places(folder, requests)
    return [
        submission.at_home(replace(request, out=place), cluster)
        for request, place in zip(requests, places, strict=True)
    ]
