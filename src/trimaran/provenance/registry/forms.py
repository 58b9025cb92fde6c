"""The two formats of an image in a registry: a SIF as an ORAS artifact, and an OCI image.

Both can be pulled without Trimaran: a SIF by `apptainer pull oras://…`, an OCI image by
`apptainer pull docker://…` or `podman pull …`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypedDict

from pydantic import BaseModel, Field

from trimaran import engines, paths
from trimaran.architectures import ARCHITECTURES, Architecture
from trimaran.engines import BuiltImage, Engine, apptainer
from trimaran.engines.build_steps import Container, Storage
from trimaran.engines.selection import no_images
from trimaran.errors import BuildError
from trimaran.images import content_hash
from trimaran.images.definition import Image
from trimaran.net import download
from trimaran.parsing import parse_json
from trimaran.provenance.registry.api import MANIFEST_BYTES, Client
from trimaran.provenance.registry.manifests import Manifest
from trimaran.reporting import Reporter

SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
"""Media type of the layer that is a SIF."""


@dataclass(frozen=True)
class Offer:
    """An image in a registry under a digest or tag.

    Attributes:
        digest: digest by which the engine identifies the image: the digest of the SIF, or of the
            OCI config.
        manifest: the manifest; None if a SIF was found by the digest of its file.
        size: size of the download in bytes.
    """

    digest: str
    manifest: Manifest | None
    size: int

    @property
    def pin(self) -> str:
        """The digest by which the image can be pulled from this registry again."""
        return self.manifest.digest if self.manifest else self.digest


@dataclass(frozen=True)
class Names:
    """The tags of one image in a registry.

    Attributes:
        content: tag of the image for one architecture, made from its content; it is never moved.
        index: tag of the index of all architectures, made from their content; it is never moved.
        release: tag of the version; it is moved to the index of a newer image.
    """

    content: str
    index: str
    release: str


SUFFIXES: dict[engines.Form, str] = {"sif": "-sif", "oci": ""}
"""Format -> the end of its tags: one repository holds SIF files and OCI images."""


def names(form: engines.Form, image: Image) -> Names:
    """Return the tags of an image in a registry."""
    end = SUFFIXES[form]
    return Names(f"{content_hash.content_tag(image)}{end}", f"{content_hash.index_tag(image)}{end}",
                 f"{image.tag}{end}")


class Form(ABC):
    """The base class of the two image formats in a registry: `Sif` and `Oci`.

    A format pushes the images of one engine to a registry, and pulls them from it.
    """

    name: ClassVar[engines.Form]

    def __init__(self, engine: Container) -> None:
        self.engine = engine

    @abstractmethod
    def offer(
        self, client: Client, reference: str, architecture: Architecture
    ) -> Offer | None:
        """Return the image that the repository has under the digest or tag `reference`, or None.

        From an index, the image for `architecture` is chosen.

        Raises:
            BuildError: The image is for another architecture or another engine.
        """

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        """Push the image under `tag`.

        Raises:
            BuildError: The engine fails.
        """
        self.engine.push(built, f"{client.repository}:{tag}", reporter=reporter, **_access(client))

    @abstractmethod
    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Pull the image, and verify its digest.

        Returns:
            The reference of the image in its engine, and its size on disk in bytes.

        Raises:
            BuildError: The download fails, or the image has another digest.
        """


def of(engine: Engine) -> Form:
    """Return the image format of `engine`: `Sif` for Apptainer, `Oci` for Podman.

    Raises:
        UsageError: The engine is the host engine, which has no images.
    """
    if isinstance(engine, Storage):
        return Oci(engine)
    if isinstance(engine, Container):
        return Sif(engine)
    raise no_images(engine.name)


class Sif(Form):
    """Push and pull images of Apptainer, which are SIF files in the registry.

    Apptainer uploads the files. Trimaran downloads them itself, so that an interrupted download can
    be resumed.
    """

    name = "sif"

    def offer(
        self, client: Client, reference: str, architecture: Architecture
    ) -> Offer | None:
        """Return the SIF with the tag `reference`, or None if the repository has no such SIF.

        If `reference` is a digest, return the SIF whose manifest or file has this digest.
        """
        # The blob is looked up first: docker-registry answers with an error if the digest of a file
        # is requested as a manifest.
        size = client.blob_size(reference) if reference.startswith("sha256:") else None
        if size is not None and size > MANIFEST_BYTES:
            return Offer(reference, None, size)
        manifest = client.manifest(reference, architecture)
        if manifest is None:
            return None
        layers = manifest.content.layers
        if [layer.media_type for layer in layers] != [SIF_LAYER]:
            raise BuildError(
                f"{client.repository} has no SIF under {reference}", code="image-other-engine",
                hint="--engine podman pulls an OCI image",
            )
        return Offer(layers[0].digest, manifest, layers[0].size)

    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Download the SIF; it gets its final name after its SHA-256 is verified.

        It is removed again if it is not a SIF for the architecture of `image`.
        """
        name = f"{image.name}-{offer.digest.removeprefix('sha256:')[:12]}.sif"
        destination = paths.cache("images", name)
        try:
            download.fetch(
                [client.blob_url(offer.digest)], destination,
                sha256=offer.digest.removeprefix("sha256:"), size=offer.size, offline=False,
                reporter=reporter, error=BuildError, session=client.session,
            )
        except BuildError as error:
            part = destination.with_name(f"{name}.part")
            if not part.is_file():
                raise
            raise BuildError(
                error.message, code=error.code,
                hint=f"{part} has {part.stat().st_size:,} of {offer.size:,} bytes;"
                " repeat the command to resume the download",
            ) from error
        try:
            found = apptainer.architecture_of(destination)
            if found != image.architecture:
                raise mismatch(client, offer.pin, found, image.architecture)
            apptainer.make_executable(destination)
        except (BuildError, OSError):
            destination.unlink(missing_ok=True)  # it would stay in the cache without a record
            raise
        return str(destination), offer.size


class Oci(Form):
    """Push and pull OCI images; Podman transfers them between the registry and its storage."""

    name = "oci"
    engine: Storage

    def offer(
        self, client: Client, reference: str, architecture: Architecture
    ) -> Offer | None:
        """Return the OCI image with the tag `reference`, or None if there is no such image.

        If `reference` is a digest, return the image whose manifest has this digest.
        """
        manifest = client.manifest(reference, architecture)
        if manifest is None:
            return None
        if "image" not in manifest.content.config.media_type:
            raise BuildError(
                f"{client.repository} has no OCI image under {reference}",
                code="image-other-engine", hint="--engine apptainer pulls a SIF",
            )
        content = manifest.content
        found = stated_architecture(client, manifest)
        if found != architecture:
            raise mismatch(client, reference, found, architecture)
        size = sum(blob.size for blob in (content.config, *content.layers))
        return Offer(content.config.digest, manifest, size)

    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Pull the image by the digest of its manifest."""
        source = f"{client.repository}@{offer.pin}"
        return self.engine.pull(source, image, offer.digest, reporter=reporter, **_access(client))


def stated_architecture(client: Client, manifest: Manifest) -> str | None:
    """Return the architecture in the configuration of an OCI image; None for a SIF.

    Raises:
        BuildError: The registry does not answer, or sends another configuration.
    """
    config = manifest.content.config
    return _architecture(client.blob(config.digest)) if "image" in config.media_type else None


class _Config(BaseModel):
    architecture: str = Field(pattern=r"^[a-z0-9_.-]{1,32}$")


def _architecture(config: bytes) -> str | None:
    """Return the architecture in the configuration of an OCI image; None if it has none."""
    try:
        return _Config.model_validate(parse_json(config)).architecture
    except ValueError:  # ValidationError is a subclass
        return None


def mismatch(
    client: Client, reference: str, found: str | None, wanted: Architecture
) -> BuildError:
    """Return the error for an image of another architecture than `wanted`."""
    return BuildError(
        f"{client.repository} has an image for {found or 'an unknown architecture'} under"
        f" {reference}, not for {wanted}", code="architecture-mismatch",
        hint=f"choose --arch {found}, or the digest of the image for {wanted}"
        if found in ARCHITECTURES else f"give the digest of the image for {wanted}",
    )


class _Access(TypedDict):
    login: Path | None
    tls: bool


def _access(client: Client) -> _Access:
    """Return the arguments of an engine's push and pull: the login file, and whether to use TLS."""
    return {"login": client.login.file if client.login else None, "tls": not client.plain_http}
