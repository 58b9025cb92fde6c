"""Push images to a registry and pull them from it, by digest.

Each image has a tag made from its content, which is never moved, and belongs to an index of all
architectures. The index has a tag made from their content, and the tag of the version, which can be
moved to another image. An image is identified by its digest, which comes from the record of a push,
the project's list of published images, a recipe or the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from trimaran import architectures, engines
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Engine, require, store
from trimaran.errors import BuildError, UsageError
from trimaran.images import content_hash, definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms
from trimaran.provenance.registry.api import Client, Repository
from trimaran.provenance.registry.manifests import Manifest, index_digest
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

    The user's own record is written, not that of the project.

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
    published = upload(form, client, image, require(engine, image), reporter)
    if image.architecture in publish_index(form.name, client, image, reporter):
        release = forms.names(form.name, image).release
        published = published.model_copy(update={"release": release})
    if own := digests.own_path():
        digests.record(published, own)
    else:
        reporter.warn("the push is not recorded, because the user has no home folder; pull the"
                      f" image by --digest {published.digest}")
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


def upload(
    form: forms.Form, client: Client, image: Image, built: BuiltImage, reporter: Reporter
) -> Publication:
    """Push an image under the tag of its content, unless it is there already; return its record.

    Raises:
        BuildError: The tag has another image, or the push fails.
    """
    tag = forms.names(form.name, image).content
    remote = form.offer(client, tag, image.architecture)
    if remote is None:
        reporter.note(f"  pushing {image.name} ({image.architecture}, {built.size / 1e6:,.0f} MB)"
                      f" to {client.repository}")
        form.push(built, client, tag, reporter)
        remote = form.offer(client, tag, image.architecture)
    if remote is None or remote.manifest is None or remote.digest != built.digest:
        raise BuildError(
            f"{client.repository}:{tag} is another image: expected {built.digest},"
            f" found {remote.digest if remote else 'no image'}; this tag is made from the content"
            " of the image and is never moved", code="tag-taken",
            hint="another build from the same definition is published: get it with"
            f" `trimaran pull {image.name} --engine {built.engine}"
            f"{architectures.option(image.architecture)} --digest {remote.pin if remote else '…'}`",
        )
    return Publication(
        image=image.name, form=form.name, architecture=image.architecture,
        reference=f"{client.repository}:{tag}", digest=remote.digest,
        manifest=remote.manifest.digest, size=remote.size, content=content_hash.content_of(image),
    )


def publish_index(
    form: engines.Form, client: Client, image: Image, reporter: Reporter,
    required: Collection[Architecture] = (),
) -> dict[Architecture, Manifest]:
    """Point the tag of the version to an index of the published images of this definition.

    If the tag points to an image for an architecture for which this definition has no published
    image yet, the tag is not moved, and a warning is shown.

    If the images for all architectures of the definition are published, the index also has the tag
    of their content, which is never moved.

    Args:
        form: format of the images.
        client: client of the repository.
        image: image definition.
        reporter: shows warnings.
        required: architectures that must be published.

    Returns:
        The images that the tag of the version points to now; empty if it was not moved.

    Raises:
        BuildError: An image of `required` is not published, or the tag of the content points to
            another index.
    """
    members = _members(form, client, image, required)
    names = forms.names(form, image)
    tags = [names.release]
    if len(members) == len(definition.chain(image)[0].architectures):
        taken = client.digest_of(names.index)
        if taken not in (None, index_digest(members)):
            raise BuildError(
                f"{client.repository}:{names.index} is another index: {taken}; this tag is made"
                " from the content of the images and is never moved", code="tag-taken",
                hint="remove the tag, if nobody uses it",
            )
        tags.insert(0, names.index)
    elif lost := client.architectures(names.release) - set(members):
        reporter.warn(
            f"{client.repository}:{names.release} is not moved: it has an image for"
            f" {', '.join(sorted(lost))}, which is not published for this definition yet"
        )
        return {}
    before = client.digest_of(names.release)
    digest = client.put_index(tags, members)
    if before not in (None, digest):
        reporter.warn(f"{client.repository}:{names.release} is moved from {before}")
    return members


def _members(
    form: engines.Form, client: Client, image: Image, required: Collection[Architecture]
) -> dict[Architecture, Manifest]:
    """Return the published images of this definition, by architecture.

    Raises:
        BuildError: An image of `required` is not published.
    """
    members: dict[Architecture, Manifest] = {}
    for architecture in definition.chain(image)[0].architectures:
        tag = forms.names(form, definition.on(image, architecture)).content
        if manifest := client.manifest(tag):
            members[architecture] = manifest
        elif architecture in required:
            raise client.not_there(tag)
    return members


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
            sends another image.
    """
    _check_digest(digest)
    form = forms.of(engine)
    known = _recorded(image, form, digest)
    wanted = known.digest if known else digest
    local = engine.find(image, wanted) if wanted else None
    if local is not None:
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
    if known is not None and known.architecture != image.architecture:
        raise BuildError(
            f"{image.name}: {digest} is the image for {known.architecture}, not for"
            f" {image.architecture}", code="architecture-mismatch",
            hint=f"choose --arch {known.architecture}, or the digest of the image for"
            f" {image.architecture}",
        )
    return known


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
