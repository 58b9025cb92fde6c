"""Push images to a registry and pull them from it, by digest.

Each image has a tag made from its content, which is never moved, and belongs to an index of all
architectures. The index has a tag made from their content, and the tag of the version, which can be
moved to another image. An image is identified by its digest, which comes from the record of a push,
the project's list of published images, a recipe or the command line.
"""

from __future__ import annotations

import os
import re

from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Engine, require, store
from trimaran.errors import BuildError, UsageError
from trimaran.images import content_hash
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms, pushing
from trimaran.provenance.registry.api import Client, Repository
from trimaran.reporting import Reporter
from trimaran.site_file import REGISTRY, Site
from trimaran.strict import DIGEST

VARIABLE = "TRIMARAN_REGISTRY"
"""Environment variable with the registry to use."""


def configured(given: str | None, site: Site) -> str | None:
    """Return the registry to use, `HOST[:PORT]/NAMESPACE`, or None.

    It is the value `given` by `--registry`, or else `$TRIMARAN_REGISTRY`, or else the registry in
    the site file.

    Raises:
        UsageError: The option or the variable does not have this form.
    """
    for source, value in (("--registry", given), (f"${VARIABLE}", os.environ.get(VARIABLE))):
        if value:
            if not re.fullmatch(REGISTRY, value):
                raise UsageError(
                    f"{source}: '{value}' is not HOST[:PORT]/NAMESPACE", code="argument-invalid",
                    hint="for example ghcr.io/OWNER/trimaran, in lower-case letters",
                )
            return value
    return site.registry


def push(
    image: Image, engine: Engine, *, registry: str | None, insecure: bool, reporter: Reporter
) -> Publication:
    """Push the built image, name it, and record the digest that the registry returns.

    The user's own record is written, not that of the project: first without the tag of the version,
    and again when that tag points to the image.

    Args:
        image: image definition, for one architecture.
        engine: engine that has built the image.
        registry: `HOST[:PORT]/NAMESPACE`, from `configured`.
        insecure: allow HTTP without TLS.
        reporter: shows the progress.

    Raises:
        UsageError: No registry is given.
        BuildError: The image is not built, the registry cannot be reached or refuses the login, or
            it has another image under the tag, which is made from the content of the definition.
    """
    form = forms.of(engine)
    client = connect(image, registry, "push to", insecure=insecure)
    published = pushing.upload(form, client, image, require(engine, image), reporter)
    own = digests.own_path()
    if own is None:
        reporter.warn("the push is not recorded, because the user has no home folder; pull the"
                      f" image by --digest {published.digest}")
    else:  # already here, because the image stays in the registry if the next step fails
        digests.record(published, own)
    if image.architecture in pushing.publish_index(form.name, client, image, reporter):
        release = forms.names(form.name, image).release
        published = published.model_copy(update={"release": release})
        if own is not None:
            digests.record(published, own)
    return published


def connect(image: Image, registry: str | None, what: str, *, insecure: bool) -> Client:
    """Return a client of the image's repository in `registry`, which has accepted the login.

    Raises:
        UsageError: No registry is given.
        BuildError: The registry cannot be reached or refuses the login.
    """
    if registry is None:
        raise _no_registry(what)
    client = Client(_repository(registry, image), insecure=insecure)
    client.check()
    return client


def pull(
    image: Image, engine: Engine, *, registry: str | None, digest: str | None, insecure: bool,
    reporter: Reporter,
) -> BuiltImage:
    """Return the image with this digest; pull it unless the engine has it already.

    The record of the pulled image names the definition from which it was published, or the
    definition in this checkout if the publication is not recorded. `Engine.find` returns the image
    for runs of that definition, and for recipes that pin its digest.

    Args:
        image: image definition.
        engine: engine for which the image is pulled: Apptainer pulls a SIF, Podman an OCI image.
        registry: `HOST[:PORT]/NAMESPACE`; None: the registry in the record of the publication.
        digest: digest of the image, of its manifest or of an index; None: the recorded digest for
            the current definition or version, else the digest that its tag has in the registry,
            with a warning.
        insecure: allow HTTP without TLS.
        reporter: shows the progress.

    Raises:
        UsageError: No registry is given or recorded, or `digest` is malformed.
        BuildError: The registry does not have the image, or has it for other architectures only, or
            sends another image; or the image with this digest is for another architecture.
    """
    _check_digest(digest)
    form = forms.of(engine)
    known = _recorded(image, form, digest)
    wanted = known.digest if known else digest
    local = engine.find(image, wanted) if wanted else None
    if local is not None:
        _require_architecture(image, str(wanted), store.architecture_of(local))
        reporter.note(f"  {engine.name} has {image.name} already")
        return local
    place = registry or (known.place if known else None)
    if place is None:
        raise _no_registry("pull from")
    client = Client(_repository(place, image), insecure=insecure)
    offer = _offered(client, form, known.manifest if known else digest, wanted, image, reporter)
    reporter.note(f"  pulling {client.repository}@{offer.pin} ({offer.size / 1e6:,.0f} MB)")
    reference, size = form.pull(image, client, offer, reporter)
    return store.pulled(
        image.name, engine.name, reference, offer.digest,
        content=_definition(image, known, reporter), size=size,
        origin=f"{client.repository}@{offer.pin}", architecture=image.architecture,
    )


def _recorded(image: Image, form: forms.Form, digest: str | None) -> Publication | None:
    """Return the record of the image to pull, or None.

    Raises:
        BuildError: The image with this digest is for another architecture.
    """
    if digest is None:
        return digests.current(
            image.name, form.name, image.architecture, content=content_hash.content_of(image),
            release=forms.names(form.name, image).release,
        )
    known = digests.with_digest(image.name, form.name, digest)
    if known is not None:
        _require_architecture(image, digest, known.architecture)
    return known


def _require_architecture(image: Image, digest: str, found: Architecture | None) -> None:
    """Raise BuildError if the image with this digest is for another architecture than `image`."""
    if found not in (None, image.architecture):
        raise BuildError(
            f"{image.name}: {digest} is the image for {found}, not for {image.architecture}",
            code="architecture-mismatch",
            hint=f"choose --arch {found}, or the digest of the image for {image.architecture}",
        )


def _check_digest(digest: str | None) -> None:
    if digest is not None and not re.fullmatch(DIGEST, digest):
        raise UsageError(
            f"--digest: '{digest}' is not sha256: and 64 hexadecimal digits",
            code="argument-invalid", hint="`trimaran list images --json` shows the digests",
        )


def _definition(image: Image, known: Publication | None, reporter: Reporter) -> str:
    """Return the content hash of the definition from which an image was published.

    The record `known` of the publication has this hash. Without a record, the hash of the
    definition in this checkout is returned. If the two hashes differ, a warning is printed.
    """
    content = content_hash.content_of(image)
    if known is None or known.content == content:
        return content
    reporter.warn(
        f"{image.name} was published from another definition than that of this checkout:"
        " only recipes that pin its digest use the image"
    )
    return known.content


def _offered(
    client: Client, form: forms.Form, pinned: str | None, wanted: str | None, image: Image,
    reporter: Reporter,
) -> forms.Offer:
    """Return the image that the registry has under the digest `pinned`, or else under its tags.

    With `pinned`, raise BuildError unless `wanted` is the digest of the image, of its manifest or
    of the index `pinned`.
    Without `pinned`, print a warning, because the tag may later point to another image.
    """
    names = forms.names(form.name, image)
    for reference in [pinned] if pinned else [names.content, names.release]:
        if offer := form.offer(client, reference, image.architecture):
            break
    else:
        raise client.not_there(reference)
    if pinned is None:
        reporter.warn(
            f"no digest of {image.name} is given or recorded: pulling"
            f" {client.repository}:{reference}, which is now {offer.pin}; use --digest {offer.pin}"
            " to get the same image again"
        )
    elif wanted != pinned and wanted not in (offer.digest, offer.pin):
        raise BuildError(
            f"{client.repository}@{reference} is another image: expected {wanted},"
            f" found {offer.digest}", code="digest-mismatch",
        )
    return offer


def knows(image: Image, engine: Engine, digest: str, registry: str | None) -> bool:
    """Return whether a registry is known that may have the image with this digest.

    Either `registry` is given, or a record of a push or the list of published images contains the
    digest.
    """
    form = forms.of(engine)
    return registry is not None or digests.with_digest(image.name, form.name, digest) is not None


def _repository(registry: str, image: Image) -> Repository:
    host, _, namespace = registry.partition("/")
    return Repository(host, f"{namespace}/{image.name}")


def _no_registry(what: str) -> UsageError:
    return UsageError(
        f"no registry to {what} is given", code="registry-missing",
        hint="give --registry HOST/NAMESPACE (for example ghcr.io/OWNER/trimaran), set"
        f" {VARIABLE}, or write registry: into the site file",
    )
