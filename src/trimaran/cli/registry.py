"""Commands that publish images, and download published images: `push` and `pull`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import EngineName, ImageName, app, command, load_image, say, terminal

if TYPE_CHECKING:
    from trimaran.site_file import Site


Registry = Annotated[
    str | None,
    typer.Option(
        "--registry", metavar="HOST[:PORT]/NAMESPACE",
        help="Registry; else $TRIMARAN_REGISTRY, else registry: of the site file.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Use a registry without TLS; the login is sent unencrypted, "
                                    "too."),
]


@command(app, network=True)
def push(
    site: Site,
    image: ImageName,
    place: Registry = None,
    engine: EngineName = "auto",
    insecure: Insecure = False,
) -> None:
    """Publish a built image, and record its digest.

    The engine decides the form: apptainer pushes the SIF (oras://), podman the OCI image
    (docker://). The digest that the registry confirms is recorded in
    ~/.local/state/trimaran/digests.yaml, where `pull` looks it up. Log in with `apptainer
    registry login` or `podman login`.

    Example: trimaran push torch-cpu --registry ghcr.io/OWNER/trimaran
    """
    from trimaran.engines.selection import select
    from trimaran.provenance import registry

    where = registry.configured(place, site)
    pushed = registry.push(
        load_image(image), select(engine), registry=where, insecure=insecure,
        reporter=terminal(),
    )
    say(f"{pushed.reference}@{pushed.manifest}")


@command(app, network=True)
def pull(
    site: Site,
    image: ImageName,
    place: Registry = None,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="sha256:HEX",
            help="Digest of the image or of its manifest, instead of the recorded one.",
        ),
    ] = None,
    engine: EngineName = "auto",
    insecure: Insecure = False,
) -> None:
    """Download a published image by its digest.

    An interrupted download is resumed. The image is used only after its digest was verified.

    Example: trimaran pull torch-cpu --registry ghcr.io/OWNER/trimaran
    """
    from trimaran.engines.selection import select
    from trimaran.provenance import registry

    where = registry.configured(place, site)
    built = registry.pull(
        load_image(image), select(engine), registry=where, digest=digest, insecure=insecure,
        reporter=terminal(),
    )
    say(f"{built.reference} {built.digest}")
