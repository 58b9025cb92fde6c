"""The two forms of an image in a registry: a SIF as an ORAS artifact, and an OCI image.

What is pushed can be pulled without Trimaran: `apptainer pull oras://…` takes the one,
`apptainer pull docker://…` and `podman pull …` take the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trimaran import paths, process
from trimaran.engines import BuiltImage, Engine, sif, store
from trimaran.engines.apptainer import Apptainer
from trimaran.engines.oci import STORAGE, Podman
from trimaran.errors import BuildError, UsageError
from trimaran.images.definition import Image
from trimaran.net import download
from trimaran.reporting import Reporter
from trimaran.supply import digests
from trimaran.supply.registry.api import MANIFEST_BYTES, Client, Manifest

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


@dataclass(frozen=True)
class Pulled:
    """An image that a pull has brought: where it is for its engine, and bytes on disk."""

    reference: str
    size: int


class Form(Protocol):
    """Pushes and pulls what one engine runs."""

    name: digests.Form

    def tag(self, image: Image) -> str:
        """Return the tag of the image in this form: both lie in one repository."""

    def offer(self, client: Client, reference: str) -> Offer | None:
        """Return what the repository has under a digest or tag, or None."""

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        """Send the image; raises BuildError when the engine fails."""

    def pull(self, image: Image, client: Client, offer: Offer, reporter: Reporter) -> Pulled:
        """Bring the image, whose digest is checked before it can be used."""


def of(engine: Engine) -> Form:
    """Return the form that `engine` runs.

    Raises:
        UsageError: the host engine has no images.
    """
    if isinstance(engine, Apptainer):
        return Sif(engine)
    if isinstance(engine, Podman):
        return Oci()
    raise UsageError(
        f"the engine '{engine.name}' has no images to push or pull",
        hint="--engine apptainer or --engine podman",
    )


class Sif:
    """SIF files; pushed by Apptainer, pulled with resume straight from the layer's blob."""

    name: digests.Form = "sif"

    def __init__(self, engine: Apptainer) -> None:
        self.engine = engine

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

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        """Send the SIF with `apptainer push`."""
        options = ["--no-https"] if client.plain_http else []
        _engine(
            [self.engine.executable, "push", *options, *_login(client), built.reference,
             f"oras://{client.repository}:{tag}"],
            reporter,
        )

    def pull(self, image: Image, client: Client, offer: Offer, reporter: Reporter) -> Pulled:
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
        return Pulled(str(destination), offer.size)


class Oci:
    """OCI images in Podman's storage."""

    name: digests.Form = "oci"

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

    def push(self, built: BuiltImage, client: Client, tag: str, reporter: Reporter) -> None:
        """Send the image with `podman push`, which leaves out the layers that are there."""
        _podman(
            "push", *_tls(client), *_login(client), built.reference,
            f"docker://{client.repository}:{tag}", reporter=reporter,
        )

    def pull(self, image: Image, client: Client, offer: Offer, reporter: Reporter) -> Pulled:
        """Pull by the manifest's digest, which Podman verifies, with that of every layer."""
        source = f"{client.repository}@{offer.manifest}"
        _podman("pull", *_tls(client), *_login(client), source, reporter=reporter)
        tag = f"localhost/trimaran/{image.name}:{offer.digest.removeprefix('sha256:')[:12]}"
        _podman("tag", source, tag, reporter=reporter)
        shown = process.run(
            ["podman", *STORAGE, "image", "inspect", "--format", "{{.Id}} {{.Size}}", tag],
            env=_environment(), check=BuildError,
        )
        found, size = shown.stdout.split()
        if f"sha256:{found}" != offer.digest:
            raise BuildError(
                f"podman made another image of {source}, not used:"
                f" expected {offer.digest}, found sha256:{found}"
            )
        return Pulled(tag, int(size))


def _size(manifest: Manifest) -> int:
    return sum(blob.size for blob in (manifest.content.config, *manifest.content.layers))


def _tls(client: Client) -> list[str]:
    return ["--tls-verify=false"] if client.plain_http else []


def _login(client: Client) -> list[str]:
    return ["--authfile", str(client.login.file)] if client.login else []


def _environment() -> dict[str, str]:
    return store.engine_environment("/usr/bin/podman")


def _podman(*words: str, reporter: Reporter) -> None:
    _engine(["podman", *STORAGE, *words], reporter)


def _engine(argv: Sequence[str], reporter: Reporter) -> None:
    output: list[str] = []

    def keep(line: str) -> None:
        output.append(line)
        reporter.detail(line)

    env = store.engine_environment(argv[0] if Path(argv[0]).is_absolute() else "/usr/bin/podman")
    status = process.stream(argv, " ".join(argv[:2]), reporter, env=env, on_line=keep)
    if status != 0:
        tail = "\n".join(output[-10:])
        raise BuildError(
            f"`{process.shell_line(argv)}` failed with status {status}:\n{tail}",
            hint="the same command goes on: what the registry has whole is not sent again",
        )
