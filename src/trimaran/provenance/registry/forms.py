"""The two forms of an image in a registry: a SIF as an ORAS artifact, and an OCI image.

What is pushed can be pulled without Trimaran: `apptainer pull oras://…` takes the one,
`apptainer pull docker://…` and `podman pull …` take the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypedDict

from trimaran import engines, paths
from trimaran.engines import BuiltImage, Engine, sif
from trimaran.engines.build_steps import Container, Storage
from trimaran.engines.selection import no_images
from trimaran.errors import BuildError
from trimaran.images.definition import Image
from trimaran.net import download
from trimaran.provenance.registry.api import MANIFEST_BYTES, Client, Manifest
from trimaran.reporting import Reporter

SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"


@dataclass(frozen=True)
class Offer:
    """What a registry has under a digest or tag.

    Attributes:
        digest: of the image, as its engine calls it.
        manifest: digest of the manifest; None where a SIF was found by its own digest.
        size: bytes to download.
    """

    digest: str
    manifest: str | None
    size: int

    @property
    def pin(self) -> str:
        """The digest to ask this registry for it again."""
        return self.manifest or self.digest


class Form(ABC):
    """Pushes and pulls what one engine runs."""

    name: ClassVar[engines.Form]

    def __init__(self, engine: Container) -> None:
        self.engine = engine

    @abstractmethod
    def tag(self, image: Image) -> str:
        """Return the tag of the image in this form: both lie in one repository."""

    @abstractmethod
    def offer(self, client: Client, reference: str) -> Offer | None:
        """Return what the repository has under a digest or tag, or None."""

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        """Send the image; raises BuildError when the engine fails."""
        self.engine.push(built, f"{client.repository}:{tag}", reporter=reporter, **_access(client))

    @abstractmethod
    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Bring the image, whose digest is checked before it can be used.

        Returns:
            Where it is for its engine, and bytes on disk.
        """


def of(engine: Engine) -> Form:
    """Return the form that `engine` runs.

    Raises:
        UsageError: the host engine has no images.
    """
    if isinstance(engine, Storage):
        return Oci(engine)
    if isinstance(engine, Container):
        return Sif(engine)
    raise no_images(engine.name)


class Sif(Form):
    """SIF files; pushed by their engine, pulled with resume straight from the layer's blob."""

    name = "sif"

    def tag(self, image: Image) -> str:
        """Return the image's tag, marked as a SIF."""
        return f"{image.tag}-sif"

    def offer(self, client: Client, reference: str) -> Offer | None:
        """Return the SIF under a manifest's digest, a tag, or the digest of the file itself."""
        # The file first: asked for it as a manifest, docker-registry answers with an error.
        size = client.blob_size(reference) if reference.startswith("sha256:") else None
        if size is not None and size > MANIFEST_BYTES:
            return Offer(reference, None, size)
        manifest = client.manifest(reference)
        if manifest is None:
            return None
        layers = manifest.content.layers
        if [layer.media_type for layer in layers] != [SIF_LAYER]:
            raise BuildError(
                f"{client.repository} has no SIF under {reference}",
                hint="--engine podman pulls an OCI image",
            )
        return Offer(layers[0].digest, manifest.digest, layers[0].size)

    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Download the SIF: it gets its name when its SHA-256 is right, and not before."""
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
                error.message,
                hint=f"{part.stat().st_size:,} of {offer.size:,} bytes are kept in {part};"
                " the same command goes on from there",
            ) from error
        sif.make_executable(destination)
        return str(destination), offer.size


class Oci(Form):
    """OCI images in the storage of their engine."""

    name = "oci"
    engine: Storage

    def tag(self, image: Image) -> str:
        """Return the image's tag."""
        return image.tag

    def offer(self, client: Client, reference: str) -> Offer | None:
        """Return the OCI image under a manifest's digest or a tag."""
        manifest = client.manifest(reference)
        if manifest is None:
            return None
        if "image" not in manifest.content.config.media_type:
            raise BuildError(
                f"{client.repository} has no OCI image under {reference}",
                hint="--engine apptainer pulls a SIF",
            )
        return Offer(manifest.content.config.digest, manifest.digest, _size(manifest))

    def pull(
        self, image: Image, client: Client, offer: Offer, reporter: Reporter
    ) -> tuple[str, int]:
        """Pull by the manifest's digest."""
        source = f"{client.repository}@{offer.manifest}"
        return self.engine.pull(source, image, offer.digest, reporter=reporter, **_access(client))


def _size(manifest: Manifest) -> int:
    return sum(blob.size for blob in (manifest.content.config, *manifest.content.layers))


class _Access(TypedDict):
    login: Path | None
    tls: bool


def _access(client: Client) -> _Access:
    """Return how an engine gets at the registry."""
    return {"login": client.login.file if client.login else None, "tls": not client.plain_http}
