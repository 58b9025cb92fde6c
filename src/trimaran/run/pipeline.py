"""Prepare and execute a run: data -> image -> exact command -> run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from trimaran import process
from trimaran.engines import BuiltImage, Engine
from trimaran.errors import RunError, UsageError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.launch.specification import Command, LaunchSpec, Node
from trimaran.recipes import options
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.options import Argument
from trimaran.reporting import Reporter
from trimaran.run import app_process, initial, inputs, launch_spec, run_directory
from trimaran.run.extensions import Extension
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord, ImageRecord, SignatureRecord
from trimaran.run.site_settings import SiteSettings
from trimaran.site_file import Site

STEPS = 4
"""Data, image, training, and the verdict, which the caller reaches."""


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        changes: arguments of the recipe replaced by `--set`.
        folders: packed data sets to use instead of the cached ones, by name.
        initial: checkpoint that a second stage begins with.
        out: run directory to make.
        base: base image to build on instead of the pinned one.
        offline: never touch the network.
        site: what holds on this machine: its registry, accepted signers, extra binds.
        extension: what is added to the image.
        queued: whether a batch system starts the tasks, on as many nodes as the recipe has.
    """

    recipe: RecipeFile
    engine: Engine
    changes: dict[str, Argument]
    folders: Mapping[str, Path] = field(default_factory=dict)
    initial: Path | None = None
    out: Path | None = None
    base: str | None = None
    offline: bool = False
    site: Site = field(default_factory=Site)
    extension: Extension = field(default_factory=Extension)
    queued: bool = False

    @cached_property
    def image(self) -> Image:
        """The definition of the recipe's image."""
        return definition.load(self.recipe.recipe.image.name)

    @property
    def pinned(self) -> str | None:
        """The digest that the image must have; no environment of the host has one."""
        return self.recipe.recipe.image.digest if self.engine.container else None


@dataclass(frozen=True)
class Plan:
    """What would be executed: the command, its folders, and what has to be made before.

    `unchecked` says why the app's arguments could not be checked (None: they were). `initial` is
    the file that it would begin with.
    """

    command: Command
    built: BuiltImage
    directory: Path
    missing: tuple[str, ...]
    unchecked: str | None
    initial: Path | None


def plan(request: Request) -> Plan:
    """Return what `execute` would run, without making, fetching or changing anything."""
    check(request, to_print=True)
    directory = run_directory.new_directory(request.recipe, request.out)
    image = request.image
    folders = inputs.places(request.recipe, request.folders)
    first, lacking = initial.planned(request.recipe, request.initial)
    request = replace(request, initial=first)
    missing = [*inputs.missing(request.recipe, request.folders), *lacking]
    # What is only shown is not hashed again: `execute` and a job's nodes do that before they run.
    built = request.engine.find(image, request.pinned, thorough=False)
    if built is None:
        fault = request.engine.damage(image, request.pinned)
        built = request.engine.planned(image)
        how = f"pull {image.name} --digest {request.pinned}" if request.pinned else (
            f"build {image.name}"
        )
        # Its file is named after its digest, or its base, which are known only once it is here.
        missing.append(
            f"image {image.name}{f' ({fault})' if fault else ''}: trimaran {how} --engine"
            f" {request.engine.name}; then print this again"
        )
    exact = launch_spec.command(specification(request, built, folders, directory))
    return Plan(exact, built, directory, tuple(missing),
                options.unchecked(request.recipe.recipe.app), first)


def execute(request: Request, reporter: Reporter) -> Path:
    """Prepare what is missing, and run the recipe: the first three of STEPS.

    Returns:
        The run directory of the completed run.

    Raises:
        BuildError, RunError: the image or data could not be had, or the app failed.
        Interrupted: stopped by the user; `run.json` says so.
    """
    check(request)
    with run_directory.claim(request.recipe, request.out) as (directory, lock):
        request, data, built, used = prepare(request, STEPS, reporter)
        folders = {one.name: Path(one.path) for one in data}
        launch = specification(request, built, folders, directory)
        with reporter.step(3, STEPS, f"training: {request.recipe.name}"):
            reporter.note(f"  {directory}")
            begun = run_directory.start(
                directory, request.recipe, request.changes, used, data, launch,
                request.extension.modifications(), initial.record(request.initial),
                site_settings(request),
            )
            app_process.perform(directory, begun, launch_spec.command(launch), lock, reporter)
    return directory


def prepare(
    request: Request, steps: int, reporter: Reporter
) -> tuple[Request, list[DataRecord], BuiltImage, ImageRecord]:
    """Get what the run needs, in the first two of `steps`: data, what it begins with, image.

    Returns:
        The request with the file that the run begins with, the data, and the image.

    Raises:
        BuildError, RunError: something could not be had.
    """
    if unchecked := options.unchecked(request.recipe.recipe.app):
        reporter.warn(unchecked)
    image = request.image
    with reporter.step(1, steps, data_title(request.recipe)):
        data = inputs.prepare(
            request.recipe, request.folders, offline=request.offline, reporter=reporter
        )
        request = replace(request, initial=initial.prepare(
            request.recipe, request.initial, offline=request.offline, reporter=reporter
        ))
    with reporter.step(2, steps, f"image: {image.name} ({request.engine.name})"):
        built = prepare_image(request, reporter)
        signature = check_signature(request, built)
    return request, data, built, ImageRecord(**vars(built), signature=signature)


def data_title(recipe: RecipeFile) -> str:
    """Return what the step that prepares the data is called."""
    return "data: " + (", ".join(recipe.recipe.data) or "none")


def prepare_image(request: Request, reporter: Reporter) -> BuiltImage:
    """Return the image that the recipe pins, pulled if need be; else the built one.

    Raises:
        BuildError: it cannot be had.
        RunError: it is not the pinned one.
    """
    image = request.image
    built = _pinned_image(request, reporter) or request.engine.build(
        image, base=request.base, offline=request.offline, reporter=reporter
    )
    if request.pinned is not None and built.digest != request.pinned:
        raise RunError(
            f"the recipe pins {image.name} to {request.pinned}, the image here is {built.digest}",
            hint="pull the published image (trimaran pull --registry …), or run a recipe whose"
            " image.digest is null",
        )
    reporter.note(f"  {built.reference} {built.digest or ''}".rstrip())
    if not request.engine.container:
        reporter.warn("not in a container: not publishable as evidence")
        if (here := request.engine.condition()).status == "warn":
            reporter.warn(f"{request.engine.name} engine: {here.detail}; {here.hint}")
    return built


def _pinned_image(request: Request, reporter: Reporter) -> BuiltImage | None:
    """Return the image that the recipe pins, from here or a registry; None: nobody knows it."""
    if request.pinned is None or request.base is not None:
        return None
    image = request.image
    with reporter.bar(f"verifying {image.name}", None):
        found = request.engine.find(image, request.pinned)
    if found is not None or request.offline:
        return found
    from trimaran.provenance import registry  # its client is slow to import

    place = registry.configured(None, request.site)
    if not registry.knows(image, request.engine, request.pinned, place):
        return None
    return registry.pull(
        image, request.engine, registry=place, digest=request.pinned, insecure=False,
        reporter=reporter,
    )


def check_signature(request: Request, built: BuiltImage) -> SignatureRecord | None:
    """Return whose signature of the image holds, or None where neither recipe nor site asks.

    Raises:
        RunError: not signed, changed since, or signed by another key.
    """
    accepted = _accepted(request)
    if not accepted:
        return None
    from trimaran.provenance import signing  # it brings Apptainer's client, which others need not

    signer = signing.require(Path(built.reference), accepted)
    return SignatureRecord(fingerprint=signer.fingerprint)


def _accepted(request: Request) -> list[list[str]]:
    """Return the lists of keys, of each of which one must have signed the image."""
    site = request.site.signatures
    asked = [request.recipe.recipe.image.signed_by, site.keys if site.required else []]
    return [keys for keys in asked if keys]


def check(request: Request, *, to_print: bool = False) -> None:
    """Raise UsageError for what can be told before anything is made, or only printed."""
    recipe = request.recipe.recipe
    faults = options.faults(recipe.app, recipe.verb, request.changes)
    if faults:
        raise UsageError("\n".join(f"--set {key}: {fault}" for key, fault in faults.items()))
    resources, starter = recipe.resources, recipe.launcher
    if not request.queued and (resources.nodes > 1 or starter == "srun"):
        raise UsageError(
            f"{request.recipe.name} needs {resources.nodes} nodes and {starter}:"
            " `run` starts the tasks of one node",
            hint=f"on a cluster: trimaran submit {request.recipe.name}; for one node:"
            " trimaran list recipes",
        )
    if _accepted(request) and request.engine.form != "sif":
        raise UsageError(
            f"the image must be signed, and the engine {request.engine.name} has no signatures",
            hint="use --engine apptainer; asked for by the recipe (image.signed_by) or site file",
        )
    inputs.check(request.recipe, request.folders, request.engine)
    initial.check(request.recipe, request.initial, to_print=to_print)
    for source in request.site.binds:
        if not source.exists():
            raise UsageError(f"binds of the site file: {source} is not there")


def specification(
    request: Request, built: BuiltImage, folders: Mapping[str, Path], directory: Path
) -> LaunchSpec:
    """Return the launch specification of a run on this machine.

    `folders` are the packed data sets, or SquashFS images of them, shown read-only; the run
    `directory` is the only writable place.
    """
    places = Places(
        inputs.mounts(request.recipe.recipe, folders), str(directory),
        initial.mounts(request.initial),
    )
    return specify(request, built, request.engine.node(built), places)


def specify(request: Request, built: BuiltImage, node: Node, places: Places) -> LaunchSpec:
    """Return the launch specification of `request` for a machine that `node` describes."""
    entry = definition.entry(request.image)
    return launch_spec.specification(
        request.recipe.recipe, request.changes, built.image, node, places,
        module=None if entry is None else entry.module,
        extension=request.extension, site=site_settings(request),
    )


def site_settings(request: Request) -> SiteSettings:
    """Return what the site file adds to the command of `request`."""
    # The host's own folders are where they are, whatever a site file says of containers.
    own = request.site.binds if request.engine.container else {}
    return SiteSettings(binds={inside: str(source) for source, inside in own.items()})


def script(planned: Plan) -> str:
    """Return `planned` as shell lines: pasted into a shell, they give the same run."""
    lines = [f"# {planned.unchecked}"] if planned.unchecked else []
    lines += [f"# first: {what}" for what in planned.missing]
    lines.append(process.shell_line(["mkdir", "-p", str(planned.directory)]))
    lines.append(process.shell_line(["cd", str(planned.directory)]))
    lines.append(run_directory.paste_line(planned.command))
    return "\n".join(lines)
