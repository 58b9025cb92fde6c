"""Push images to a registry and pull them from it, by digest.

A tag names the version of Trimaran and of the framework; it can be moved to another image.
Therefore an image is identified by its digest, which comes from the record of a push, the project's
list of published images, a recipe or the command line.
"""

from __future__ import annotations

import os
import re

from trimaran.engines import BuiltImage, Engine, require, store
from trimaran.errors import BuildError, UsageError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms
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
    """Push the built image, and record the digest that the registry returns.

    Args:
        image: image definition.
        engine: engine that has built the image.
        registry: `HOST[:PORT]/NAMESPACE`, from `configured`.
        insecure: allow HTTP without TLS.
        reporter: shows the progress.

    Raises:
        UsageError: No registry is given.
        BuildError: The image is not built, the registry cannot be reached or refuses the login,
            or the tag refers to another image after the push, for example because another user has
            pushed to the same tag.
    """
    form = forms.of(engine)
    if registry is None:
        raise _no_registry("push to")
    built = require(engine, image)
    client = Client(_repository(registry, image), insecure=insecure)
    client.check()
    tag = form.tag(image)
    before = client.manifest(tag)
    remote = form.offer(client, tag) if before else None
    if remote is None or remote.digest != built.digest:
        if before is not None:
            reporter.warn(f"{client.repository}:{tag} is moved from {before.digest}")
        reporter.note(f"  pushing {image.name} ({built.size / 1e6:,.0f} MB) to {client.repository}")
        form.push(built, client, tag, reporter)
        remote = form.offer(client, tag)
    if remote is None or remote.manifest is None or remote.digest != built.digest:
        raise BuildError(
            f"{client.repository}:{tag} is not the pushed image: expected {built.digest},"
            f" found {remote.digest if remote else 'no image'}", code="digest-mismatch",
            hint="another user may have pushed to the same tag; push again",
        )
    publication = Publication(
        image=image.name, form=form.name, reference=f"{client.repository}:{tag}",
        digest=remote.digest, manifest=remote.manifest, size=remote.size,
        content=definition.content_of(image),
    )
    if own := digests.own_path():
        digests.record(publication, own)
    else:
        reporter.warn("the push is not recorded, because the user has no home folder; pull the"
                      f" image by --digest {publication.digest}")
    return publication


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
        digest: digest of the image or of its manifest; None: the recorded digest of the current
            tag, else the digest that the tag has in the registry, with a warning.
        insecure: allow HTTP without TLS.
        reporter: shows the progress.

    Raises:
        UsageError: No registry is given or recorded, or `digest` is malformed.
        BuildError: The registry does not have the image, or sends another image.
    """
    _check_digest(digest)
    form = forms.of(engine)
    known = digests.find(image.name, form.name, digest=digest, tag=form.tag(image))
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
    content = definition.content_of(image)
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
    """Return the image that the registry has under the digest `pinned`, or else under its tag.

    With `pinned`, raise BuildError unless `wanted` is the digest of the image or of its manifest.
    Without `pinned`, print a warning, because the tag may later point to another image.
    """
    reference = pinned or form.tag(image)
    offer = form.offer(client, reference)
    if offer is None:
        raise client.not_there(reference)
    if pinned is None:
        reporter.warn(
            f"no digest of {image.name} is given or recorded: pulling"
            f" {client.repository}:{reference}, which is now {offer.pin}; use --digest {offer.pin}"
            " to get the same image again"
        )
    elif wanted not in (offer.digest, offer.manifest):
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
    return registry is not None or digests.find(image.name, form.name, digest=digest) is not None


def _repository(registry: str, image: Image) -> Repository:
    host, _, namespace = registry.partition("/")
    return Repository(host, f"{namespace}/{image.name}")


def _no_registry(what: str) -> UsageError:
    return UsageError(
        f"no registry to {what} is given", code="registry-missing",
        hint="give --registry HOST/NAMESPACE (for example ghcr.io/OWNER/trimaran), set"
        f" {VARIABLE}, or write registry: into the site file",
    )
