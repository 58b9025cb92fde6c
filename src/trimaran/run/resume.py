"""A run that was stopped goes on: the same command once more, from its newest checkpoint."""

from __future__ import annotations

import shlex
from pathlib import Path

from trimaran.engines import BuiltImage
from trimaran.engines.selection import select
from trimaran.errors import RunError, UsageError
from trimaran.launch.specification import LaunchSpec
from trimaran.recipes import options
from trimaran.reporting import Reporter
from trimaran.run import (
    app_process,
    initial,
    inputs,
    launch_spec,
    pipeline,
    recorded_recipe,
    run_directory,
)
from trimaran.run.extensions import Extension
from trimaran.run.pipeline import STEPS, Request
from trimaran.run.record import RunRecord
from trimaran.site_file import Site

OPTION = "--resume=auto"
"""With it, an app goes on from its newest checkpoint, or begins where there is none."""


def resume(directory: Path, site: Site, reporter: Reporter) -> None:
    """Continue the run in `directory` to its end.

    Recipe, data, image and what was added to it must be those of the run, by their hashes,
    and the command must come out the same.

    Raises:
        UsageError: it is no run, has come to its end, is going on, or something is another.
        RunError: image or data are gone, or the app failed again.
        Interrupted: stopped by the user once more.
    """
    directory = directory.absolute()
    run_directory.load(directory)  # before the lock, which would be made in any folder
    with run_directory.alone(directory) as lock:
        record = run_directory.load(directory)
        if record.status == "completed":
            raise UsageError(
                f"the run in {directory} has come to its end",
                hint=f"trimaran report {directory} judges it again",
            )
        run_directory.refuse_foreign(directory)
        request = _request(directory, record, site)
        with reporter.step(1, STEPS, pipeline.data_title(request.recipe)):
            _check_data(request, record, reporter)
        with reporter.step(2, STEPS, f"image: {record.image.name} ({record.image.engine})"):
            launch = _launch(request, record, directory, reporter)
        with reporter.step(3, STEPS, f"training goes on: {record.recipe.name}"):
            reporter.note(f"  {directory}")
            again = launch_spec.command(launch.with_arguments(OPTION))
            begun = run_directory.go_on(directory, record)
            app_process.perform(directory, begun, again, lock, reporter)


def _request(directory: Path, record: RunRecord, site: Site) -> Request:
    """Return what the user asked for when the run began, as `run.json` tells it."""
    added = {one.kind: Path(one.path) for one in record.modified}
    extension = Extension(added.get("overlay"), added.get("venv"))
    if extension.modifications() != record.modified:
        raise UsageError("what was added to the image (--overlay, --venv) has changed since")
    first = Path(record.initial.path) if record.initial else None
    if first is not None and (not first.is_file() or initial.record(first) != record.initial):
        raise UsageError(f"{first}, with which the run began, is gone or has changed since")
    request = Request(
        recipe=recorded_recipe.recipe_as_run(directory, record), engine=select(record.image.engine),
        changes=record.recipe.changed, initial=first, site=site, extension=extension,
        folders={data.name: Path(data.path) for data in record.data},
    )
    pipeline.check(request)
    recipe = request.recipe.recipe
    if fault := options.faults(recipe.app, recipe.verb, {"resume": "auto"}).get("resume"):
        raise UsageError(f"a run of {record.recipe.name} cannot go on: {fault}",
                         hint=f"run it again: trimaran run {record.recipe.name}")
    return request


def _check_data(request: Request, record: RunRecord, reporter: Reporter) -> None:
    found = inputs.prepare(request.recipe, request.folders, offline=True, reporter=reporter)
    begun = {data.name: data.sha256 for data in record.data}
    for data in found:
        if data.sha256 != begun.get(data.name):
            raise UsageError(f"{data.path} has other data than those the run began with")


def _launch(
    request: Request, record: RunRecord, directory: Path, reporter: Reporter
) -> LaunchSpec:
    """Return the specification of the run, built again: the environment is today's.

    Raises:
        RunError: the image is gone, or the command would be another one.
    """
    with reporter.bar(f"verifying {record.image.name}", None):
        built = _image(request, record)
    launch = pipeline.specification(request, built, request.folders, directory)
    exact = launch_spec.command(launch)
    others = [word for word in exact.argv if word not in record.command.argv]
    if list(exact.argv) != record.command.argv:
        raise RunError(
            f"the command would not be that of the run in {directory}"
            + (f": {shlex.join(others)}" if others else ""),
            hint="run directory, data, image and engine must be where they were, and the site file"
            " must have the same binds; `command.shell` in run.json is the run's",
        )
    return launch


def _image(request: Request, record: RunRecord) -> BuiltImage:
    """Return the image of the run, whose bytes were checked."""
    used = record.image
    back = f"a published one comes back with: trimaran pull {used.name} --digest DIGEST"
    built = request.engine.find(request.image, used.digest)
    if built is None and (fault := request.engine.damage(request.image, used.digest)):
        raise RunError(f"the run began with an image that has changed since: {fault}", hint=back)
    if built is None or (built.digest, built.inputs) != (used.digest, used.inputs):
        raise RunError(f"{used.name} ({used.digest or 'inputs ' + used.inputs}), which the run"
                       " began with, is not here any more", hint=back)
    return built
