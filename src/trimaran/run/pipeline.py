"""Prepare the data and the image of a run, and execute its exact command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from trimaran import architectures, process
from trimaran.architectures import Architecture, native
from trimaran.engines import BuiltImage, Engine, store
from trimaran.errors import BuildError, RunError, UsageError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.launch.specification import Command, LaunchSpec, Node
from trimaran.recipes import cards
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.reporting import Reporter
from trimaran.run import app_process, horovod, inputs, launch_spec, run_directory
from trimaran.run.additions import Extension
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord, ImageRecord, SignatureRecord
from trimaran.run.site_settings import SiteSettings
from trimaran.site_file import Site

STEPS = 4
"""Number of steps that a run shows: data, image, training and verdict.

This module shows the first three, its caller shows the verdict.
"""


@dataclass(frozen=True)
class Request:
    """A run that the user requests.

    Attributes:
        recipe: the recipe to run.
        engine: the engine of the image.
        changes: arguments from `--set`, which replace those of the recipe.
        folders: packed data sets to use instead of those in the cache, by name.
        initial: checkpoint that the run starts from.
        out: run directory to create; None: a new folder below `runs`.
        base: base image to build on instead of the pinned base image.
        offline: do not use the network.
        site: the site file: registry, accepted signers, binds.
        extension: additions to the image.
        queued: whether a batch system starts the tasks on the nodes that the recipe requests.
        to_come: whether another run writes `initial` before this run starts.
        architecture: architecture of the machine that runs the image; None: this machine's.
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
    to_come: bool = False
    architecture: Architecture | None = None

    @cached_property
    def image(self) -> Image:
        """The definition of the recipe's image, for the architecture of the run.

        Raises:
            UsageError: no image is made for the architecture; the message gives the reason.
        """
        image = definition.load(self.recipe.recipe.image.name)
        return definition.on(image, self.architecture or native())

    @cached_property
    def pinned(self) -> str | None:
        """The digest of the pinned image; None if the recipe pins none, or for a run on the host.

        Recipes pin the digest of a SIF. For another engine, this is the digest of the image that
        was published with that SIF.

        Raises:
            UsageError: The recipe pins images for other architectures only.
        """
        choice, architecture = self.recipe.recipe.image, self.image.architecture
        if self.engine.form is None or choice.digest is None:
            return None
        digest = choice.digest_for(architecture)
        if digest is None:
            raise UsageError(
                f"{self.recipe.name} pins {choice.name} for {', '.join(choice.digest)}, not for"
                f" {architecture}", code="architecture-mismatch",
                hint="run it on a machine of that architecture, or copy the recipe and set"
                " image.digest to null",
            )
        from trimaran.provenance import digests  # only for recipes with a digest

        return digests.counterpart(choice.name, digest, self.engine.form)


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
        _check_horovod(request, built)
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
        BuildError: the image could not be built or pulled.
        RunError: the data or the checkpoint could not be prepared, or the image is not signed.
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
        _check_horovod(request, built)
    emulated = image.architecture != native() and not request.queued
    used = ImageRecord(**vars(built), signature=signature, emulated=emulated)
    return Ready(request, data, built, used)


def prepare_image(request: Request, reporter: Reporter) -> BuiltImage:
    """Return the image that the recipe pins, and pull it if needed; without a pin, build the image.

    Raises:
        BuildError: the image cannot be built or pulled.
        RunError: the image differs from the pinned digest, or is for another architecture.
    """
    image = request.image
    built = (
        _pinned_image(request, reporter) or foreign_image(request, reporter)
        or request.engine.build(image, base=request.base, offline=request.offline,
                                reporter=reporter)
    )
    check_architecture(request, built)
    if request.pinned is not None and built.digest != request.pinned:
        raise RunError(
            f"the recipe pins {image.name} to {request.pinned}, the image here is {built.digest}",
            code="digest-mismatch",
            hint="pull the published image (trimaran pull --registry …), or run a recipe whose"
            " image.digest is null",
        )
    reporter.note(f"  {built.reference} {built.digest or ''}".rstrip())
    if not request.engine.container:
        reporter.warn("the run is not in a container, so it cannot be published as evidence")
        if (here := request.engine.condition()).status == "warn":
            reporter.warn(f"{request.engine.name} engine: {here.detail}; {here.hint}")
    return built


def _pinned_image(request: Request, reporter: Reporter) -> BuiltImage | None:
    """Return the pinned image from this machine or a registry, or None if it was not found."""
    if request.pinned is None or request.base is not None:
        return None
    image = request.image
    with reporter.bar(f"verifying {image.name}", None):
        found = request.engine.find(image, request.pinned)
    if found is not None or request.offline:
        return found
    from trimaran.provenance import registry  # the registry client is slow to import

    place = registry.configured(None, request.site)
    if not registry.knows(image, request.engine, request.pinned, place):
        return None
    return registry.pull(
        image, request.engine, registry=place, digest=request.pinned, insecure=False,
        reporter=reporter,
    )


def foreign_image(
    request: Request, reporter: Reporter, *, thorough: bool = True
) -> BuiltImage | None:
    """Return the image for another architecture than this machine's, which is never built unasked.

    Building under emulation can take hours. Return None for an image that `build` has to make: for
    this machine, or with a base image that the user names.

    Args:
        request: the request.
        reporter: shows that the image is verified.
        thorough: as in `Engine.find`.

    Raises:
        BuildError: the image is not on this machine.
    """
    image = request.image
    if image.architecture == native() or request.base is not None:
        return None
    with reporter.bar(f"verifying {image.name}", None):
        found = request.engine.find(image, thorough=thorough)
    if found is not None:
        return found
    others = store.built_for(image, request.engine.name) - {image.architecture}
    only = f", only for {', '.join(sorted(others))}" if others else ""
    raise BuildError(
        f"the nodes of the run are {image.architecture}, and {image.name} is not built here for"
        f" {image.architecture}{only}", code="image-missing",
        hint=f"trimaran build {image.name} --arch {image.architecture}, or trimaran pull; if the"
        f" nodes really are {native()}, set `architecture` of the cluster in the site file, or"
        f" give --arch {native()} to `trimaran bundle`",
    )


def check_architecture(request: Request, built: BuiltImage) -> None:
    """Check that an image, which the recipe may pin by its digest, is for the run's architecture.

    Raises:
        RunError: the image is for another architecture.
    """
    found = store.architecture_of(built)
    if found is not None and found != (wanted := request.image.architecture):
        raise RunError(
            f"the image {built.digest} of {built.name} is for {found}, and the machine of the run"
            f" is {wanted}", code="architecture-mismatch",
            hint="take a recipe whose image.digest is null or the digest of the image for"
            f" {wanted}",
        )


def _check_horovod(request: Request, built: BuiltImage) -> None:
    recipe = request.recipe.recipe
    values = {**recipe.args, **request.changes}.values()
    horovod.check(recipe, values, request.engine, request.image, built)


def check_signature(request: Request, built: BuiltImage) -> SignatureRecord | None:
    """Verify the signature of the image, and return a record of it.

    The result is None if the image needs no signature: the recipe and the site file demand none.

    Raises:
        RunError: the image is not signed, changed after it was signed, or signed by another key.
    """
    accepted = _accepted(request)
    if not accepted:
        return None
    from trimaran.provenance import signing  # imported only where a signature is demanded

    signer = signing.require(Path(built.reference), accepted)
    return SignatureRecord(fingerprint=signer.fingerprint)


def _accepted(request: Request) -> list[list[str]]:
    """Return lists of accepted keys: the image needs a signature by one key of each list.

    The recipe has one list. The site file has another, if it requires signatures. Empty lists are
    left out.
    """
    site = request.site.signatures
    asked = [request.recipe.recipe.image.signed_by, site.keys if site.required else []]
    return [keys for keys in asked if keys]


def needs_batch_system(recipe: Recipe) -> bool:
    """Return whether only a batch system can start a recipe, so that `trimaran run` refuses it."""
    return recipe.resources.nodes > 1 or recipe.launcher == "srun"


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
    if not request.queued and needs_batch_system(recipe):
        raise UsageError(
            f"{request.recipe.name} needs {recipe.resources.nodes} nodes and {recipe.launcher}:"
            " `run` starts the tasks of one node",
            code="batch-system-required",
            hint=f"on a cluster: trimaran submit {request.recipe.name}; for one node:"
            " trimaran list recipes",
        )
    if _accepted(request) and request.engine.form != "sif":
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
