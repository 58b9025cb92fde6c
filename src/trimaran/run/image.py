"""Find, pull or build the image of a run, and check that the run may use it."""

from __future__ import annotations

from pathlib import Path

from trimaran.architectures import Architecture, native
from trimaran.engines import BuiltImage, store
from trimaran.errors import BuildError, RunError
from trimaran.images.definition import Image
from trimaran.reporting import Reporter
from trimaran.run import horovod
from trimaran.run.record import SignatureRecord
from trimaran.run.request import Request


def prepare_image(request: Request, reporter: Reporter) -> BuiltImage:
    """Return the image that the recipe pins, and pull it if needed; without a pin, build the image.

    Raises:
        UsageError: the recipe pins images for other architectures only, no image is made for the
            architecture, or the address of the registry is malformed.
        BuildError: the image cannot be built or pulled, or is not here for nodes of another
            architecture.
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
            " image.digest is null; image.digest is the digest of the image itself, not that of its"
            " manifest or of an index",
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
        UsageError: the recipe pins images for other architectures only.
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
    arch = f"--arch {image.architecture}"
    # A build has another digest than the image that the recipe pins.
    how = f"trimaran pull {image.name} {arch} --digest {request.pinned}" if request.pinned else (
        f"trimaran build {image.name} {arch}, or trimaran pull"
    )
    raise BuildError(
        f"the nodes of the run are {image.architecture}, and {image.name} is not built here for"
        f" {image.architecture}{only}", code="image-missing",
        hint=f"{how}; if the nodes really are {native()}, set `architecture` of the cluster in the"
        f" site file, or give --arch {native()} to `trimaran bundle`",
    )


def check_pin(request: Request) -> None:
    """Check, before data are prepared, that the pinned digest is for the run's architecture.

    The architecture of a digest is known if the image is on this machine, or is recorded as
    published.

    Raises:
        RunError: the image is for another architecture.
    """
    form = request.engine.form
    if not request.recipe.recipe.image.digests or form is None or request.pinned is None:
        return
    image = request.image
    here = request.engine.find(image, request.pinned, thorough=False)
    if here is not None:
        check_architecture(request, here)
        return
    from trimaran.provenance import digests  # only for recipes with a digest

    published = digests.with_digest(image.name, form, request.pinned)
    if published is not None:
        _require(image, request.pinned, published.architecture)


def check_architecture(request: Request, built: BuiltImage) -> None:
    """Check that an image, which the recipe may pin by its digest, is for the run's architecture.

    Raises:
        RunError: the image is for another architecture.
    """
    found = store.architecture_of(built)
    if found is not None:
        _require(request.image, str(built.digest), found)


def _require(image: Image, digest: str, found: Architecture) -> None:
    """Raise RunError unless `found`, the architecture of the image `digest`, is that of `image`."""
    if found != image.architecture:
        raise RunError(
            f"the image {digest} of {image.name} is for {found}, and the machine of the run is"
            f" {image.architecture}", code="architecture-mismatch",
            hint="take a recipe whose image.digest is null or the digest of the image for"
            f" {image.architecture}",
        )


def check_horovod(request: Request, built: BuiltImage) -> None:
    """Check that the image has Horovod if the recipe, with its changes, needs it.

    Raises:
        UsageError: the recipe needs Horovod, and the image was built without it.
    """
    recipe = request.recipe.recipe
    values = {**recipe.args, **request.changes}.values()
    horovod.check(recipe, values, request.engine, request.image, built)


def check_signature(request: Request, built: BuiltImage) -> SignatureRecord | None:
    """Verify the signature of the image, and return a record of it.

    The result is None if the image needs no signature: the recipe and the site file demand none.

    Raises:
        RunError: the image is not signed, changed after it was signed, or signed by another key.
    """
    accepted = accepted_keys(request)
    if not accepted:
        return None
    from trimaran.provenance import signing  # imported only where a signature is demanded

    signer = signing.require(Path(built.reference), accepted)
    return SignatureRecord(fingerprint=signer.fingerprint)


def accepted_keys(request: Request) -> list[list[str]]:
    """Return lists of accepted keys: the image needs a signature by one key of each list.

    The recipe has one list. The site file has another, if it requires signatures. Empty lists are
    left out.
    """
    site = request.site.signatures
    asked = [request.recipe.recipe.image.signed_by, site.keys if site.required else []]
    return [keys for keys in asked if keys]
