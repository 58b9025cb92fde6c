"""Submit recipes that start from each other: each run queues the next one when it has completed.

A dependency of the batch system (Slurm `afterok`, PBS `-W depend`, LSF `-w done()`) names one job,
but a run may take several jobs, whose numbers are not known when it is submitted. Therefore the
script of a run queues the next run at its end (`follow` in several.sh).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from trimaran.cluster import jobs, script, several, submission
from trimaran.cluster.jobs import Submitted
from trimaran.cluster.script import SCHEDULERS, Job
from trimaran.cluster.several import CHAIN, Runs
from trimaran.cluster.submission import STEPS
from trimaran.errors import UsageError
from trimaran.recipes.library import RecipeFile
from trimaran.reporting import Reporter
from trimaran.run.request import Request
from trimaran.site_file import Cluster


def check(requests: Sequence[Request]) -> None:
    """Check that each recipe starts from the last checkpoint of the recipe before it.

    Raises:
        UsageError: there is only one recipe, a recipe does not start from the recipe before it, or
            a recipe starts from a step other than the last step of the recipe before it. If the
            order is wrong, the hint shows the right order.
    """
    if len(requests) < 2:
        raise UsageError("--chain needs at least two recipes", code="arguments-conflict",
                         hint="name the recipes in the order of their runs")
    for before, request in pairwise(requests):
        step = start_step(request.recipe, before.recipe)
        if step is None:
            raise _wrong_order(requests, before.recipe, request.recipe)
        if (fault := _other_end(before, step)) is not None:
            raise UsageError(
                f"--chain: {request.recipe.name} starts from step {step} of {before.recipe.name},"
                f" which {fault}; an app keeps only its newest checkpoints",
                code="chain-broken",
                hint="let the first recipe end at that step (max-steps), or submit the recipes one"
                " by one with --initial",
            )


def start_step(recipe: RecipeFile, before: RecipeFile) -> int | None:
    """Return the step of the checkpoint of `before` from which `recipe` starts, or None.

    The result is None if `recipe` does not start from a checkpoint of the recipe `before`.
    """
    asked = recipe.recipe.initial
    name, _, point = before.name.partition("@")
    if asked is None or asked.recipe != name:
        return None
    return asked.steps.get(int(point)) if point else asked.step


def _other_end(request: Request, step: int) -> str | None:
    """Return "ends at step N" if the run does not end at `step`, where its successor starts.

    Return None if the run ends at `step`, or if its last step is unknown because the recipe gives
    the length of the training in epochs. In the latter case, the job checks whether the checkpoint
    of this step exists.
    """
    arguments = {**request.recipe.recipe.args, **request.changes}
    steps, most = (
        value if isinstance(value := arguments.get(name), int) else None
        for name in ("steps", "max-steps")
    )
    known = [value for value in (steps, most) if value is not None]
    if not known or (steps is None and min(known) >= step) or min(known) == step:
        return None
    return f"ends at step {min(known)}"


def _wrong_order(
    requests: Sequence[Request], before: RecipeFile, recipe: RecipeFile
) -> UsageError:
    files = [request.recipe for request in requests]
    asked = recipe.recipe.initial
    source = None if asked is None else asked.recipe
    order = _ordered(files)
    return UsageError(
        f"--chain: {recipe.name} does not start from {before.name}, but from"
        f" {source or 'no other run'}",
        code="chain-broken",
        hint=f"the right order: trimaran submit {' '.join(order)} --chain" if order
        else "name recipes that start from each other (`initial` in the recipe)",
    )


def _ordered(files: Sequence[RecipeFile]) -> list[str]:
    """Return the names of the recipes in the order of a chain; [] if they are not one chain."""
    for first in files:
        found, rest = [first], [file for file in files if file is not first]
        while following := [file for file in rest if start_step(file, found[-1]) is not None]:
            found.append(following[0])
            rest.remove(following[0])
        if not rest:
            return [file.name for file in found]
    return []


def preview(requests: Sequence[Request], cluster: Cluster) -> str:
    """Return the scripts that `submit` would write, without making or queueing anything.

    Raises:
        UsageError: the recipes are not a chain, or one of them cannot be a job.
    """
    placed = _placed(requests, cluster)
    planned = [submission.plan(request, cluster) for request in placed]
    linked = _linked([job for job, _ in planned])
    return "\n".join(
        submission.with_missing(script.render(job), missing, job.directory)
        for job, (_, missing) in zip(linked, planned, strict=True)
    )


def submit(
    requests: Sequence[Request], name: str, cluster: Cluster, reporter: Reporter
) -> Submitted:
    """Prepare all runs of the chain, and queue the first one.

    Raises:
        UsageError: the recipes are not a chain, a recipe cannot be a job of this cluster, or a
            command of the batch system is not on PATH.
        BuildError: an image cannot be built or fetched.
        RunError: data cannot be prepared, or the batch system refuses the job.
    """
    placed = _placed(requests, cluster)
    for request in placed:
        submission.check_recipe(request)
        submission.check_image(request)
    scheduler = SCHEDULERS[cluster.scheduler]
    scheduler.check()
    with several.claimed(placed) as locks:
        ready = [
            submission.prepare(request, cluster, _directory(request), reporter)
            for request in placed
        ]
        linked = _linked([job for job, _ in ready])
        for job in linked:
            script.render(job)  # all faults before the first file
        with reporter.step(3, STEPS, f"job: {linked[0].request.recipe.name}, the first of"
                                     f" {len(linked)}"):
            begun = [submission.write(job, used, name)
                     for job, (_, used) in zip(linked, ready, strict=True)]
            runs = Runs(runs=[job.directory.name for job in linked])
            several.write(linked[0].directory.parent, CHAIN, runs)
            return jobs.queue([linked[0].directory], begun[0].name, scheduler, locks[:1])


def _placed(requests: Sequence[Request], cluster: Cluster) -> list[Request]:
    """Return copies of the requests in which run directory and initial checkpoint are set.

    Each run except the first starts from a checkpoint that the previous run will write. The
    data sets and the architecture of the cluster are set, too.
    """
    check(requests)
    folder = several.folder(requests, CHAIN, cluster)
    submission.check_place(folder, cluster)
    places = several.places(folder, requests)
    placed = [replace(requests[0], out=places[0])]
    for (before, request), (made, place) in zip(pairwise(requests), pairwise(places), strict=True):
        step = start_step(request.recipe, before.recipe)
        first = made / "checkpoints" / f"step-{step:08d}.npz"
        placed.append(replace(request, out=place, initial=first, to_come=True))
    return [submission.at_home(request, cluster) for request in placed]


def _linked(chain: Sequence[Job]) -> list[Job]:
    """Return the jobs of the chain, each with references to the previous and the next run."""
    linked: list[Job] = []
    for number, job in enumerate(chain):
        following: tuple[Path, Path] | None = None
        if number + 1 < len(chain):
            after = chain[number + 1]
            assert after.request.initial is not None  # noqa: S101 - `_placed` sets it
            following = (after.directory, after.request.initial)
        before = chain[number - 1].directory if number else None
        linked.append(replace(job, before=before, following=following))
    return linked


def _directory(request: Request) -> Path:
    """Return the run directory of a request, which `_placed` has chosen."""
    assert request.out is not None  # noqa: S101 - for the type checker
    return request.out
