"""Prepare the data and the image of a run, and execute its exact command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from trimaran import architectures, process
from trimaran.engines import BuiltImage
from trimaran.errors import UsageError
from trimaran.images import definition
from trimaran.launch.specification import Command, LaunchSpec, Node
from trimaran.recipes import cards
from trimaran.reporting import Reporter
from trimaran.run import app_process, inputs, launch_spec, machines, run_directory
from trimaran.run.image import (
    accepted_keys,
    check_architecture,
    check_horovod,
    check_pin,
    check_signature,
    prepare_image,
)
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord, ImageRecord
from trimaran.run.request import Request
from trimaran.run.site_settings import SiteSettings

STEPS = 4
"""Number of steps that a run shows: data, image, training and verdict.

This module shows the first three, its caller shows the verdict.
"""


@dataclass(frozen=True)
class Plan:
    """A planned run, which is printed and not started.

    Attributes:
        command: the command of the run.
        built: the image of the run.
        directory: the run directory.
        missing: a line for each thing that must be done before the run, such as a missing data set.
        unchecked: why the arguments of the app could not be checked; None: they were checked.
        initial: the file that the run would start from.
    """

    command: Command
    built: BuiltImage
    directory: Path
    missing: tuple[str, ...]
    unchecked: str | None
    initial: Path | None


def plan(request: Request) -> Plan:
    """Return the run that `execute` would start, without changing or downloading anything.

    Raises:
        UsageError: the request is invalid.
    """
    check(request, to_print=True)
    directory = run_directory.new_directory(request.recipe, request.out)
    image = request.image
    folders = inputs.places(request.recipe, request.folders)
    first, lacking = inputs.planned_initial(request.recipe, request.initial)
    request = replace(request, initial=first)
    missing = [*inputs.missing(request.recipe, request.folders), *lacking]
    # The image is not hashed here: `execute` and the nodes of a job hash it before they run it.
    built = request.engine.find(image, request.pinned, thorough=False)
    if built is None:
        fault = request.engine.damage(image, request.pinned)
        built = request.engine.planned(image)
        how = f"pull {image.name} --digest {request.pinned}" if request.pinned else (
            f"build {image.name}"
        )
        how += architectures.option(image.architecture)
        # The file name of the image depends on its digest or base, which are not known yet.
        missing.append(
            f"image {image.name}{f' ({fault})' if fault else ''}: trimaran {how} --engine"
            f" {request.engine.name}; then print this again"
        )
    else:
        check_architecture(request, built)
        check_horovod(request, built)
    exact = launch_spec.command(specification(request, built, folders, directory))
    return Plan(exact, built, directory, tuple(missing),
                cards.unchecked_options(request.recipe.recipe.app), first)


def execute(request: Request, reporter: Reporter, seconds: float | None = None) -> Path:
    """Prepare missing data and images, and run the recipe; the caller makes the verdict.

    Args:
        request: the run.
        reporter: shows progress.
        seconds: time limit of the app; None: no limit.

    Returns:
        The run directory of the completed run.

    Raises:
        UsageError: the request is invalid.
        BuildError: the image could not be built or pulled.
        RunError: the data could not be prepared, or the app failed or exceeded the time limit.
        Interrupted: the user stopped the run; `run.json` records it.
    """
    check(request)
    check_pin(request)
    with run_directory.claim(request.recipe, request.out) as claimed:
        ready = prepare(request, STEPS, reporter)
        with reporter.step(3, STEPS, f"training: {request.recipe.name}"):
            reporter.note(f"  {claimed[0]}")
            train(ready, claimed, reporter, seconds)
    return claimed[0]


class Ready(NamedTuple):
    """A request whose data and image are prepared, so that the training can start.

    Attributes:
        request: the request.
        data: the data sets of the run.
        built: the image of the run.
        used: the entry of the image in `run.json`.
    """

    request: Request
    data: list[DataRecord]
    built: BuiltImage
    used: ImageRecord


def train(
    ready: Ready, claimed: tuple[Path, int], reporter: Reporter, seconds: float | None = None
) -> None:
    """Run a prepared request in a run directory that `run_directory.claim` returned.

    Raises:
        RunError: the app failed or exceeded the time limit of `seconds`.
        Interrupted: the user stopped the run; `run.json` records it.
    """
    request, data, built, used = ready
    directory, lock = claimed
    launch = specification(request, built, {one.name: Path(one.path) for one in data}, directory)
    modified, exact = request.extension.modifications(), launch_spec.command(launch)
    begun = run_directory.start(
        directory, request.recipe, request.changes, used, data, launch,
        modified, inputs.initial_record(request.initial), site_settings(request),
    )
    app_process.perform(directory, begun, exact, lock, reporter, seconds)


def prepare(request: Request, steps: int, reporter: Reporter) -> Ready:
    """Prepare the data, the initial checkpoint and the image of the run.

    The reporter shows this as steps 1 and 2 of `steps`.

    Returns:
        Four values: the request, now with the checkpoint that the run starts from; the data sets;
        the image; and the entry of the image in `run.json`.

    Raises:
        UsageError: no image is made for the architecture of the run, the recipe pins images for
            other architectures only, or it needs Horovod, which the image lacks.
        BuildError: the image could not be built or pulled.
        RunError: the data or the checkpoint could not be prepared, the image differs from the
            pinned digest or is for another architecture, or it is not signed.
    """
    if unchecked := cards.unchecked_options(request.recipe.recipe.app):
        reporter.warn(unchecked)
    image = request.image
    with reporter.step(1, steps, inputs.title(request.recipe)):
        data = inputs.prepare(
            request.recipe, request.folders, offline=request.offline, reporter=reporter
        )
        request = replace(request, initial=inputs.prepare_initial(
            request.recipe, request.initial, offline=request.offline, reporter=reporter
        ))
    with reporter.step(2, steps, f"image: {image.name} ({request.engine.name})"):
        built = prepare_image(request, reporter)
        signature = check_signature(request, built)
        check_horovod(request, built)
    # Other machines run the queued tasks, and the host engine has no image to emulate.
    here = request.engine.container and not request.queued
    emulated = here and architectures.is_emulated(image.architecture)
    used = ImageRecord(**vars(built), signature=signature, emulated=emulated)
    return Ready(request, data, built, used)


def check(request: Request, *, to_print: bool = False) -> None:
    """Check the request before any file is created or any command is printed.

    Args:
        request: the request.
        to_print: whether the command is only printed.

    Raises:
        UsageError: an argument, the engine, the data or a bind of the site file is not suitable.
    """
    recipe = request.recipe.recipe
    faults = cards.argument_faults(recipe.app, recipe.verb, request.changes)
    if faults:
        raise UsageError("\n".join(f"--set {key}: {fault}" for key, fault in faults.items()),
                         code="argument-invalid")
    if not request.queued and machines.needs_batch_system(recipe):
        raise UsageError(
            f"{request.recipe.name} needs {recipe.resources.nodes} nodes and {recipe.launcher}:"
            " `run` starts the tasks of one node",
            code="batch-system-required",
            hint=f"on a cluster: trimaran submit {request.recipe.name}; for one node:"
            " trimaran list recipes",
        )
    if accepted_keys(request) and request.engine.form != "sif":
        raise UsageError(
            f"the image must be signed, and the engine {request.engine.name} has no signatures",
            code="engine-unsuitable",
            hint="use --engine apptainer; the recipe (image.signed_by) or the site file demands it",
        )
    inputs.check(request.recipe, request.folders, request.engine)
    inputs.check_initial(
        request.recipe, request.initial, to_print=to_print, to_come=request.to_come
    )
    for source in request.site.binds:
        if not source.exists():
            raise UsageError(f"binds of the site file: {source} does not exist",
                             code="file-missing", hint="correct the site file")


def specification(
    request: Request, built: BuiltImage, folders: Mapping[str, Path], directory: Path
) -> LaunchSpec:
    """Return the launch specification of a run on this machine.

    Args:
        request: the request.
        built: the image.
        folders: the packed data sets, or SquashFS images of them, which are mounted read-only.
        directory: the run directory, the only writable folder.
    """
    places = Places(
        inputs.mounts(request.recipe.recipe, folders), str(directory),
        inputs.initial_mounts(request.initial),
    )
    return specify(request, built, request.engine.node(built), places)


def specify(request: Request, built: BuiltImage, node: Node, places: Places) -> LaunchSpec:
    """Return the launch specification of `request`.

    Args:
        request: the request.
        built: the image of the run.
        node: the values that depend on the machine, such as the path of the engine.
        places: the files that the run reads and writes.
    """
    site, entry = site_settings(request), definition.entry(request.image)
    return launch_spec.specification(
        request.recipe.recipe, request.changes, built.image, node, places,
        module=None if entry is None else entry.module,
        extension=request.extension, site=site,
    )


def site_settings(request: Request) -> SiteSettings:
    """Return what the site file adds to the command of `request`."""
    # Binds of the site file are for containers; on the host the paths stay the same.
    own = request.site.binds if request.engine.container else {}
    return SiteSettings(binds={inside: str(source) for source, inside in own.items()})


def script(planned: Plan) -> str:
    """Return shell lines that start the run `planned` when a user pastes them into a shell."""
    lines = [f"# {planned.unchecked}"] if planned.unchecked else []
    lines += [f"# first: {what}" for what in planned.missing]
    lines.append(process.shell_line(["mkdir", "-p", str(planned.directory)]))
    lines.append(process.shell_line(["cd", str(planned.directory)]))
    lines.append(run_directory.paste_line(planned.command))
    return "\n".join(lines)
