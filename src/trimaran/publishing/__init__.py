"""Publish images: build, test, sign and push them for each architecture, then name them.

An image is pushed only after its self-test and its training have passed, and the tag of the version
is moved only after all its images were pushed. A publication that was stopped can be repeated: an
image that the registry has under the tag of its content is pulled and tested instead of built.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.architectures import Architecture
from trimaran.engines import BuiltImage, Engine, Form, image_contents, require, selection
from trimaran.errors import BuildError, UsageError
from trimaran.files import write_atomic
from trimaran.images import definition, emulation
from trimaran.images.definition import Image
from trimaran.provenance import digests, registry, sbom, signing, size_limit
from trimaran.provenance.digests import Publication
from trimaran.provenance.registry import forms, pushing
from trimaran.provenance.registry.api import Client
from trimaran.provenance.registry.manifests import Manifest
from trimaran.publishing import origin, smoke
from trimaran.reporting import Reporter
from trimaran.site_file import Site

ENGINES: dict[Form, str] = {"sif": "apptainer", "oci": "podman"}
"""Format -> name of the engine that builds, tests and pushes images in this format."""


@dataclass(frozen=True)
class Order:
    """How images are published.

    Attributes:
        registry: `HOST[:PORT]/NAMESPACE`; None: no registry is configured, which is an error.
        insecure: allow HTTP without TLS.
        forms: the formats that are published.
        key: the private key that signs the SIF; None: it is not signed.
        ask: function that returns the passphrase of the key.
        materials: folder for the software bills of materials.
        site: the site file of this machine, for the short training that tests each image.
    """

    registry: str | None
    insecure: bool
    forms: Sequence[Form]
    key: signing.Key | None
    ask: Callable[[], str]
    materials: Path
    site: Site


def choose(image: Image, wanted: Sequence[Architecture]) -> list[Architecture]:
    """Return the architectures `wanted`, or all architectures of `image` if none is wanted.

    Raises:
        UsageError: The image cannot be built for a wanted architecture.
    """
    for architecture in wanted:
        definition.on(image, architecture)
    return list(dict.fromkeys(wanted)) or list(definition.chain(image)[0].architectures)


def publish(
    image: Image, architectures: Sequence[Architecture], order: Order, reporter: Reporter
) -> list[Publication]:
    """Build, test, sign and push the image for each architecture, and record it in the project.

    The images get only the tags of their content here. The function `name` adds the tag of the
    version. Only the image in the first format is trained in. The size limit, the signature and the
    bill of materials are those of the SIF.

    Raises:
        UsageError: No registry is configured.
        RunError: A SIF that the registry has is not signed by the key of `order`.
        BuildError: An architecture can be neither run nor emulated, the origin of an image is
            unknown, an image or its self-test or training fails, a SIF is larger than its limit, or
            the registry fails or has another image under a tag.
    """
    client = registry.connect(image, order.registry, "publish in", insecure=order.insecure)
    for architecture in architectures:
        emulation.require_for(definition.on(image, architecture))
    engines = [selection.select(ENGINES[form]) for form in order.forms]
    if "sif" not in order.forms:
        reporter.warn(f"{image.name}: an OCI image has no size limit, signature or bill of"
                      " materials; --form sif publishes the SIF, too, which has them")
    published = []
    for architecture in architectures:
        model = definition.on(image, architecture)
        ready = [_tested(model, engine, client, order, reporter) for engine in engines]
        for engine, built in zip(engines, ready, strict=True):
            size_limit.require(engine, model, built)
        _train(model, engines[0], ready[0], order.site, reporter)
        for engine, built in zip(engines, ready, strict=True):
            one = pushing.upload(forms.of(engine), client, model, built, reporter)
            digests.record(one, digests.project_path())
            published.append(one)
    return published


def name(
    plans: Sequence[tuple[Image, Sequence[Architecture]]], order: Order, reporter: Reporter
) -> None:
    """Point the tags of the versions to the published images for all architectures.

    All images in all formats are checked before the first tag is moved.

    Args:
        plans: the images, each with the architectures that must be published.
        order: registry and formats.
        reporter: shows the tags.

    Raises:
        UsageError: No registry is configured.
        BuildError: One of the architectures is not published, an image is not in the project's file
            of digests, or the registry fails.
    """
    steps: list[tuple[Image, Sequence[Architecture], Client, Form]] = []
    for image, architectures in plans:
        client = registry.connect(image, order.registry, "publish in", insecure=order.insecure)
        steps += [(image, architectures, client, form) for form in order.forms]
    for image, architectures, client, form in steps:
        accept = functools.partial(_publications, client, form)
        pushing.plan_index(form, client, image, architectures, accept)
    for image, architectures, client, form in steps:
        accept = functools.partial(_publications, client, form)
        named = pushing.publish_index(form, client, image, reporter, architectures, accept)
        release = forms.names(form, image).release
        if named:
            reporter.note(f"  {client.repository}:{release} has images for {', '.join(named)}")
        for known in accept(named):
            digests.record(known.model_copy(update={"release": release}), digests.project_path())


def _publications(
    client: Client, form: Form, members: Mapping[Architecture, Manifest]
) -> list[Publication]:
    """Return the entries of published images in the project's file of digests.

    Raises:
        BuildError: An image is not in the file.
    """
    found = []
    for architecture, manifest in members.items():
        known = _recorded(client, form, manifest.digest)
        if known is None:
            raise BuildError(
                f"{client.repository}@{manifest.digest} ({architecture}) is not in"
                f" {digests.project_path()}", code="image-unpublished",
                hint="add the file of the machine that has published it"
                " (scripts/release_digests.py), or publish it again here",
            )
        found.append(known)
    return found


def _recorded(client: Client, form: Form, manifest: str) -> Publication | None:
    """Return the entry for a published image in the file of digests of this checkout, or None.

    Args:
        client: client of the repository that contains the image.
        form: format of the image.
        manifest: digest of the manifest of the image.
    """
    for one in digests.load(digests.project_path()).published:
        here = one.reference.rpartition(":")[0] == str(client.repository)
        if here and (one.form, one.manifest) == (form, manifest):
            return one
    return None


def _tested(
    model: Image, engine: Engine, client: Client, order: Order, reporter: Reporter
) -> BuiltImage:
    """Return the image of `engine`, which has passed its tests; a SIF is signed and described."""
    form = forms.of(engine)
    remote = form.offer(client, forms.names(form.name, model).content, model.architecture)
    built = engine.find(model, remote.digest) if remote else engine.find(model)
    if remote is not None and built is None:
        if form.name != "sif" or order.key is None:  # no signature can show who published it
            place = f"{client.repository}@{remote.pin}"
            origin.require_published(model, engine, remote.digest, place)
        built = registry.pull(
            model, engine, registry=order.registry, digest=remote.pin, insecure=order.insecure,
            reporter=reporter,
        )
    if built is None:
        built = _built(model, engine, reporter)
    else:
        origin.require(model, engine, built, order.key)
        engine.test(model, built, reporter)
    if form.name == "sif":
        if remote is None and order.key is not None:
            built = _signed(model, engine, built, order.key, order.ask)
        if order.key is not None:
            # Also of an image that the registry had: its tag is never moved to a signed one.
            signing.require(Path(built.reference), [[order.key.fingerprint]])
        _describe(model, engine, built, order.materials)
    return built


def _built(model: Image, engine: Engine, reporter: Reporter) -> BuiltImage:
    """Return the image after building it, which ends with the self-test."""
    for below in definition.chain(model)[:-1]:
        if (framework := engine.find(below)) is not None:
            origin.require(below, engine, framework, key=None)
    return engine.build(model, base=None, offline=False, reporter=reporter)


def _train(
    model: Image, engine: Engine, built: BuiltImage, site: Site, reporter: Reporter
) -> None:
    result = smoke.train(model, engine, built, site, reporter)
    reporter.note(f"  {model.name} ({model.architecture}): {result}")


def _signed(
    model: Image, engine: Engine, built: BuiltImage, key: signing.Key, ask: Callable[[], str]
) -> BuiltImage:
    """Sign the image with `key`, unless it has this signature; return the signed image."""
    try:
        signing.sign(Path(built.reference), key, ask)
    except UsageError as error:
        if error.code != "signature-exists":
            raise
    return require(engine, model)


def _describe(model: Image, engine: Engine, built: BuiltImage, folder: Path) -> None:
    """Write the bill of materials of an image into `folder`, unless it is there."""
    digest = str(built.digest).removeprefix("sha256:")[:12]
    file = folder / f"{model.name}-{model.architecture}-{digest}.cdx.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        contents = image_contents.of(engine, built)
        write_atomic(file, sbom.text(contents, sbom.locked_hashes(model)))
