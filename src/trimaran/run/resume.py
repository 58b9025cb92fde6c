"""Resume a stopped run: execute its command again, from the newest checkpoint."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from trimaran import architectures
from trimaran.engines import BuiltImage
from trimaran.engines.selection import select
from trimaran.errors import RunError, UsageError
from trimaran.launch.specification import LaunchSpec
from trimaran.recipes import cards
from trimaran.reporting import Reporter
from trimaran.run import app_process, inputs, launch_spec, pipeline, run_directory
from trimaran.run.additions import Extension
from trimaran.run.image import check_architecture
from trimaran.run.pipeline import STEPS
from trimaran.run.record import RunRecord
from trimaran.run.request import Request
from trimaran.site_file import Site

OPTION = "--resume=auto"
"""Option by which an app resumes from its newest checkpoint, or from step 0 without one."""


def resume(directory: Path, site: Site, reporter: Reporter) -> None:
    """Resume the run in `directory`.

    The recipe, the data, the image and what was added to the image (an overlay or a virtual
    environment) must have the hashes in `run.json`, and the command must be the same.

    Raises:
        UsageError: `directory` is not a run directory, the run has completed or is running, or
            a file that it uses has changed.
        RunError: the image or the data are missing, or the app failed again.
        Interrupted: the user stopped the run again.
    """
    directory = directory.absolute()
    run_directory.load(directory)  # before `alone`, which would create a lock file in any folder
    with run_directory.alone(directory) as lock:
        record = run_directory.load(directory)
        if record.status == "completed":
            raise UsageError(
                f"the run in {directory} has completed", code="run-completed",
                hint=f"trimaran report {directory} judges it again",
            )
        run_directory.refuse_foreign(directory)
        request = _request(directory, record, site)
        with reporter.step(1, STEPS, inputs.title(request.recipe)):
            _check_data(request, record, reporter)
        with reporter.step(2, STEPS, f"image: {record.image.name} ({record.image.engine})"):
            launch = _launch(request, record, directory, reporter)
        with reporter.step(3, STEPS, f"training resumes: {record.recipe.name}"):
            reporter.note(f"  {directory}")
            again = launch_spec.command(replace(launch, arguments=(*launch.arguments, OPTION)))
            begun = run_directory.go_on(directory, record)
            app_process.perform(directory, begun, again, lock, reporter)


def _request(directory: Path, record: RunRecord, site: Site) -> Request:
    added = {one.kind: Path(one.path) for one in record.modified}
    extension = Extension(added.get("overlay"), added.get("venv"))
    if extension.modifications() != record.modified:
        raise UsageError("the additions to the image (--overlay, --venv) have changed: "
                         + ", ".join(one.path for one in record.modified), code="run-changed",
                         hint="restore them, or run the recipe again")
    first = Path(record.initial.path) if record.initial else None
    if first is not None and not (
        first.is_file() and inputs.initial_record(first) == record.initial
    ):
        raise UsageError(f"{first}, from which the run started, is missing or has changed",
                         code="run-changed", hint="restore the file, or run the recipe again")
    request = Request(
        recipe=run_directory.recipe_as_run(directory, record), engine=select(record.image.engine),
        changes=record.recipe.changed, initial=first, site=site, extension=extension,
        folders={data.name: Path(data.path) for data in record.data},
    )
    pipeline.check(request)
    recipe = request.recipe.recipe
    if fault := cards.argument_faults(recipe.app, recipe.verb, {"resume": "auto"}).get("resume"):
        raise UsageError(f"a run of {record.recipe.name} cannot be resumed: {fault}",
                         code="run-not-resumable",
                         hint=f"run it again: trimaran run {record.recipe.name}")
    return request


def _check_data(request: Request, record: RunRecord, reporter: Reporter) -> None:
    """Prepare the data, and check that they have the hashes in the record of the run."""
    found = inputs.prepare(request.recipe, request.folders, offline=True, reporter=reporter)
    begun = {data.name: data.sha256 for data in record.data}
    for data in found:
        if data.sha256 != begun.get(data.name):
            raise UsageError(f"{data.path} has other data than the run", code="run-changed",
                             hint="restore the data, or run the recipe again")


def _launch(
    request: Request, record: RunRecord, directory: Path, reporter: Reporter
) -> LaunchSpec:
    """Build the launch specification again, and check that it results in the recorded command."""
    with reporter.bar(f"verifying {record.image.name}", None):
        built = _image(request, record)
    launch = pipeline.specification(request, built, request.folders, directory)
    exact = launch_spec.command(launch)
    others = [word for word in exact.argv if word not in record.command.argv]
    if list(exact.argv) != record.command.argv:
        raise RunError(
            f"the command would differ from that of the run in {directory}"
            + (f": {shlex.join(others)}" if others else ""),
            code="run-changed",
            hint="run directory, data, image and engine must have the same paths, and the site file"
            " the same binds; the command of the run is `command.shell` in run.json",
        )
    return launch


def _image(request: Request, record: RunRecord) -> BuiltImage:
    used = record.image
    option = architectures.option(used.architecture) if used.architecture else ""
    back = ("a published image can be pulled again:"
            f" trimaran pull {used.name}{option} --digest DIGEST")
    built = request.engine.find(request.image, used.digest)
    if built is None and (fault := request.engine.damage(request.image, used.digest)):
        raise RunError(f"the image of the run has changed: {fault}", code="image-damaged",
                       hint=back)
    if built is None or (built.digest, built.inputs) != (used.digest, used.inputs):
        raise RunError(f"the image of the run is not on this machine any more: {used.name}"
                       f" ({used.digest or 'inputs ' + used.inputs})", code="image-missing",
                       hint=back)
    check_architecture(request, built)
    return built
