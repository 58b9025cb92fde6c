"""Decide whether an image may be published: it was built here, or its publisher is known.

A pulled image, and one that was built with `--base`, has the same content hash as a build from the
definition alone. Its record distinguishes them.
"""

from __future__ import annotations

from pathlib import Path

from trimaran.engines import BuiltImage, Engine, store
from trimaran.engines.store import Record
from trimaran.errors import BuildError
from trimaran.images import bases, content_hash, definition
from trimaran.images.definition import Image
from trimaran.provenance import digests, signing


def require(image: Image, engine: Engine, built: BuiltImage, key: signing.Key | None) -> None:
    """Raise an error unless the image was built here from its definition, or is known.

    An image is known if the project's file of digests lists it. A pulled SIF is also known if it
    has a valid signature by `key`.

    Args:
        image: definition of the image, for one architecture.
        engine: engine that has the image.
        built: the image.
        key: the key of the publisher; None: no signature counts.

    Raises:
        BuildError: The image was pulled and is not known, or was built on a base image that the
            user named.
        RunError: A pulled SIF that is not listed has no valid signature by `key`.
    """
    if _is_from_definition(image, engine, built) or is_published(image, engine, built.digest):
        return
    pulled = isinstance(built, Record) and built.origin is not None
    if pulled and engine.form == "sif" and key is not None:
        signing.require(Path(built.reference), [[key.fingerprint]])
        return
    below = definition.chain(image)[0].name
    raise BuildError(
        f"{image.name} ({image.architecture}), {built.reference}, is not published: it was"
        + (f" pulled from {built.origin}, and" if isinstance(built, Record) and pulled
           else " not built on the base image of its definition, and")
        + f" {digests.project_path()} does not list it", code="origin-unknown",
        hint=f"remove it from this machine{f', and {below}' if below != image.name else ''};"
             " `publish` then builds it",
    )


def require_published(image: Image, engine: Engine, digest: str, place: str) -> None:
    """Raise BuildError unless the project's file of digests lists the image `digest`.

    `place` is the address of the image in its registry, which the message names.
    """
    if not is_published(image, engine, digest):
        raise BuildError(
            f"{place} is {digest}, which is neither built on this machine nor listed in"
            f" {digests.project_path()}", code="origin-unknown",
            hint="add the file of the machine that has published it (scripts/release_digests.py)"
            f"{'; or sign: a SIF with your signature is accepted' if engine.form == 'sif' else ''}"
            "; or remove the tag from the registry",
        )


def is_published(image: Image, engine: Engine, digest: str | None) -> bool:
    """Return whether the project has published the image `digest` from this definition."""
    return digest in _published(image, engine)


def _published(image: Image, engine: Engine) -> set[str]:
    """Return the digests of this definition's images that the project's file of digests lists."""
    wanted = (image.name, engine.form, image.architecture, content_hash.content_of(image))
    return {
        one.digest for one in digests.load(digests.project_path()).published
        if (one.image, one.form, one.architecture, one.content) == wanted
    }


def _is_from_definition(image: Image, engine: Engine, built: BuiltImage) -> bool:
    """Return whether the image was built on this machine, from the base of its definition."""
    return (
        isinstance(built, Record) and built.origin is None
        and built.inputs in _inputs(image, engine)
    )


def _inputs(image: Image, engine: Engine) -> set[str]:
    """Return the hashes of all inputs (`store.inputs_of`) that a build of `image` may have.

    The hash of an app image contains that of its framework image. For a pulled framework image,
    this is its digest.
    """
    *frameworks, _ = definition.chain(image)
    under = set() if frameworks else _base_digests(image, engine)
    for framework in frameworks:
        pulled = {digest.removeprefix("sha256:") for digest in _published(framework, engine)}
        under = _inputs(framework, engine) | pulled
    content = content_hash.content_of(image)
    return {store.inputs_of(content, one) for one in under}


def _base_digests(image: Image, engine: Engine) -> set[str]:
    """Return the digests of the base images on which a framework image may be built.

    They are the pinned base image, and those that were assembled from packages instead.
    """
    base = image.base
    if base is None:
        return set()
    pinned = {base.digest} if base.digest else set()
    if base.suite is None:
        return pinned
    return pinned | {
        record.base_digest for record in store.records(image, engine.name)
        if record.origin is None and bases.is_assembled(record.base_name, base.suite)
    }
