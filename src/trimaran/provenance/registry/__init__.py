"""Push images to a registry and pull them from it, by digest.

A tag is for people: it names the version of Trimaran and of the framework, and can be moved.
What decides is the digest, from what was pushed or published, a recipe or the command line.
"""

from __future__ import annotations

import os
import re

from trimaran.engines import BuiltImage, Engine, require, store
from trimaran.errors import BuildError, UsageError
from trimaran.images import identity
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms
from trimaran.provenance.registry.api import Client, Repository
from trimaran.reporting import Reporter
from trimaran.site_file import REGISTRY, Site
from trimaran.strict import DIGEST

VARIABLE = "TRIMARAN_REGISTRY"


def configured(given: str | None, site: Site) -> str | None:
    """Return the registry `HOST[:PORT]/NAMESPACE` to use: of `--registry`, else of
    `$TRIMARAN_REGISTRY`, else of the site file, else None.

    Raises:
        UsageError: what was given is none.
    """
    for source, value in (("--registry", given), (f"${VARIABLE}", os.environ.get(VARIABLE))):
        if value:
            if not re.fullmatch(REGISTRY, value):
                raise UsageError(
                    f"{source}: '{value}' is not HOST[:PORT]/NAMESPACE",
                    hint="for example ghcr.io/OWNER/trimaran, in small letters",
                )
            return value
    return site.registry


def push(
    image: Image, engine: Engine, *, registry: str | None, insecure: bool, reporter: Reporter
) -> Publication:
    """Push the image that is built here, and record the digest that the registry confirms.

    Raises:
        UsageError: no registry is known.
        BuildError: the image is not built, or the registry cannot be reached, wants another
            login, or holds something else afterwards.
    """
    form = forms.of(engine)
    if registry is None:
        raise _no_registry("push to")
    built = require(engine, image)
    client = Client(_repository(registry, image), insecure=insecure)
    client.check()
    tag = form.tag(image)
    before = client.manifest(tag)
    there = form.offer(client, tag) if before else None
    if there is None or there.digest != built.digest:
        if before is not None:
            reporter.warn(f"{client.repository}:{tag} named {before.digest} until now")
        reporter.note(f"  pushing {image.name} ({built.size / 1e6:,.0f} MB) to {client.repository}")
        form.push(built, client, tag, reporter)
        there = form.offer(client, tag)
    if there is None or there.manifest is None or there.digest != built.digest:
        raise BuildError(
            f"{client.repository}:{tag} is not what was pushed: expected {built.digest},"
            f" found {there.digest if there else 'nothing'}",
            hint="somebody else may have pushed to the same tag; push again",
        )
    publication = Publication(
        image=image.name, form=form.name, reference=f"{client.repository}:{tag}",
        digest=there.digest, manifest=there.manifest, size=there.size,
        content=identity.content_of(image),
    )
    if own := digests.own_path():
        digests.record(publication, own)
    else:
        reporter.warn("no home folder is known, so this is not kept: pull it by --digest"
                      f" {publication.digest}")
    return publication


def pull(
    image: Image, engine: Engine, *, registry: str | None, digest: str | None, insecure: bool,
    reporter: Reporter,
) -> BuiltImage:
    """Return the image with this digest, pulled unless it is here already.

    It counts as built from the definition that it was published from, or, where
    no record knows it, from the one that is here now. `Engine.find` gives it
    for runs of that definition, and for recipes that pin its digest.

    Args:
        image: which image.
        engine: decides the form.
        registry: where to look; None: where it was pushed to, as was recorded.
        digest: the image's own or its manifest's; None: the one that was recorded for
            the current tag, else what the registry has under that tag, with a warning.
        insecure: do without TLS where the registry has none.
        reporter: is shown progress.

    Raises:
        UsageError: no registry is known, or what was given is no digest.
        BuildError: the registry does not give it, or gives something else.
    """
    _check_digest(digest)
    form = forms.of(engine)
    known = digests.find(image.name, form.name, digest=digest, tag=form.tag(image))
    wanted = known.digest if known else digest
    here = engine.find(image, wanted) if wanted else None
    if here is not None:
        reporter.note(f"  {image.name} is here already")
        return here
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
        origin=f"{client.repository}@{offer.pin}",
    )


def _check_digest(digest: str | None) -> None:
    if digest is not None and not re.fullmatch(DIGEST, digest):
        raise UsageError(
            f"--digest: '{digest}' is not sha256: and 64 digits",
            hint="`trimaran list images --json` has them; a tag can be moved",
        )


def _definition(image: Image, known: Publication | None, reporter: Reporter) -> str:
    """Return the content hash of the definition that an image was published from."""
    content = identity.content_of(image)
    if known is None or known.content == content:
        return content
    reporter.warn(
        f"{image.name} was published from another definition than the one here:"
        " only recipes that pin its digest use it"
    )
    return known.content


def _offered(
    client: Client, form: forms.Form, pinned: str | None, wanted: str | None, image: Image,
    reporter: Reporter,
) -> forms.Offer:
    """Return what the registry has under `pinned`, and is `wanted`; without it, under the tag."""
    reference = pinned or form.tag(image)
    offer = form.offer(client, reference)
    if offer is None:
        raise client.not_there(reference)
    if pinned is None:
        reporter.warn(
            f"no digest of {image.name} is known here: taking what {client.repository}:{reference}"
            f" names today, {offer.pin}; --digest {offer.pin} asks for the same again"
        )
    elif wanted not in (offer.digest, offer.manifest):
        raise BuildError(
            f"{client.repository}@{reference} is another image: expected {wanted},"
            f" found {offer.digest}"
        )
    return offer


def knows(image: Image, engine: Engine, digest: str, registry: str | None) -> bool:
    """Whether there is a place to pull the image with this digest from."""
    form = forms.of(engine)
    return registry is not None or digests.find(image.name, form.name, digest=digest) is not None


def _repository(registry: str, image: Image) -> Repository:
    host, _, namespace = registry.partition("/")
    return Repository(host, f"{namespace}/{image.name}")


def _no_registry(what: str) -> UsageError:
    return UsageError(
        f"no registry to {what} is known",
        hint="give --registry HOST/NAMESPACE (for example ghcr.io/OWNER/trimaran), set"
        f" {VARIABLE}, or write registry: into the site file",
    )
