"""Push images under tags that are never moved, and move the tag of the version to them.

A registry cannot change a tag only if it still has an expected value. Each tag is therefore looked
up directly before it is written, and again afterwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from trimaran import architectures, engines
from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage
from trimaran.errors import BuildError
from trimaran.images import content_hash, definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms
from trimaran.provenance.registry.api import PART, UNKNOWN, Client
from trimaran.provenance.registry.manifests import Manifest, index_digest
from trimaran.reporting import Reporter

ATTEMPTS = 3
"""Maximum number of times that the tag of a version is moved while others change it."""

Accept = Callable[[Mapping[Architecture, Manifest]], object]
"""A function that raises an error if the tag of a version must not be moved to these images."""


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
        _send(form, client, image, built, reporter)
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


def _send(
    form: forms.Form, client: Client, image: Image, built: BuiltImage, reporter: Reporter
) -> None:
    """Upload an image, and give it the tag of its content if that is still free afterwards.

    An upload takes minutes, in which another machine may publish an image under that tag. The image
    is therefore uploaded under a tag of its own, which is removed if the registry allows it.

    Raises:
        BuildError: The push fails, or the registry has another image than was pushed.
    """
    tag = forms.names(form.name, image).content
    part = f"{tag}{PART}{secrets.token_hex(4)}"
    form.push(built, client, part, reporter)
    try:
        sent = form.offer(client, part, image.architecture)
        if sent is None or sent.manifest is None or sent.digest != built.digest:
            raise BuildError(
                f"{client.repository}:{part} is not the image that was pushed: expected"
                f" {built.digest}, found {sent.digest if sent else 'no image'}",
                code="digest-mismatch", hint="repeat the command",
            )
        if client.digest_of(tag) is None:
            client.copy(sent.manifest, tag)
    finally:
        client.untag(part)


@dataclass(frozen=True)
class Index:
    """The index of an image for all architectures, before it is pushed.

    Attributes:
        members: the published images, by architecture.
        tags: the tags that the index gets.
        lost: architectures of the index or image that has the tag of the version now, for which no
            image of this definition is published; if there are any, the tag must not be moved.
    """

    members: Mapping[Architecture, Manifest]
    tags: tuple[str, ...]
    lost: frozenset[str]


def plan_index(
    form: engines.Form, client: Client, image: Image,
    required: Collection[Architecture] = (), accept: Accept = lambda members: None,
) -> Index:
    """Return the index of the published images of this definition; nothing is changed.

    Args:
        form: format of the images.
        client: client of the repository.
        image: image definition.
        required: architectures that must be published.
        accept: function that raises an error if an image must not be in the index.

    Raises:
        BuildError: An image of `required` is not published, or the tag of the content points to
            another index.
    """
    members = _members(form, client, image, required)
    accept(members)
    names = forms.names(form, image)
    if len(members) < len(definition.chain(image)[0].architectures):
        lost = _architectures(form, client, image, names.release) - set(members)
        return Index(members, (names.release,), frozenset(lost))
    taken = client.digest_of(names.index)
    if taken not in (None, index_digest(members)):
        raise BuildError(
            f"{client.repository}:{names.index} is another index: {taken}; this tag is made"
            " from the content of the images and is never moved", code="tag-taken",
            hint=f"repeat the command after the tag {names.index} was deleted in the registry; who"
            " pulls by this tag then gets the new index",
        )
    return Index(members, (names.index, names.release), frozenset())


def publish_index(
    form: engines.Form, client: Client, image: Image, reporter: Reporter,
    required: Collection[Architecture] = (), accept: Accept = lambda members: None,
) -> Mapping[Architecture, Manifest]:
    """Point the tag of the version to an index of the published images of this definition.

    If the tag points to an image for an architecture for which this definition has no published
    image yet, the tag is not moved, and a warning is shown.

    If the images for all architectures of the definition are published, the index also has the tag
    of their content, which is never moved.

    If another machine pushes an image or moves the tag at the same time, the tag is moved again.

    Args:
        form: format of the images.
        client: client of the repository.
        image: image definition.
        reporter: shows warnings.
        required: architectures that must be published.
        accept: function that raises an error if an image must not be in the index.

    Returns:
        The images that the tag of the version points to now; empty if it was not moved.

    Raises:
        BuildError: An image of `required` is not published, the tag of the content points to
            another index, or others move the tag of the version again and again.
    """
    release = forms.names(form, image).release
    before = client.digest_of(release)
    for _ in range(ATTEMPTS):
        index = plan_index(form, client, image, required, accept)
        if index.lost:
            reporter.warn(
                f"{client.repository}:{release} is not moved: it has an image for"
                f" {', '.join(sorted(index.lost))}, which is not published for this definition yet"
            )
            return {}
        digest = client.put_index(list(index.tags), index.members)
        unmoved = client.digest_of(release) == digest
        if unmoved and plan_index(form, client, image, required, accept) == index:
            if before not in (None, digest):
                reporter.warn(f"{client.repository}:{release} is moved from {before}")
            return index.members
    raise BuildError(
        f"{client.repository}:{release} was moved by another machine {ATTEMPTS} times",
        code="in-use", hint="repeat the command when the other publication has ended",
    )


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


def _architectures(form: engines.Form, client: Client, image: Image, tag: str) -> set[str]:
    """Return the architectures of the index or image that has the tag; empty if it is free."""
    found = client.architectures(tag)
    if found is not None:
        return found
    manifest = client.manifest(tag)
    if manifest is None:
        return set()
    known = digests.with_digest(image.name, form, manifest.digest)
    return {known.architecture if known
            else forms.stated_architecture(client, manifest) or UNKNOWN}
