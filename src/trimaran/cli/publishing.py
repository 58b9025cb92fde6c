"""The command `publish`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from trimaran.architectures import Architecture
from trimaran.cli.common import app, arch_option, command, say, terminal
from trimaran.cli.supply_chain import (
    AllOf,
    Insecure,
    KeyIndex,
    OptionalImage,
    Registry,
    ask_passphrase,
    one_of,
)
from trimaran.engines import Form

if TYPE_CHECKING:
    from trimaran.site_file import Site


class Format(Enum):
    """The format of an image, a value of `--form`: a SIF of Apptainer, or an OCI image."""

    sif = "sif"
    oci = "oci"


@command(app, network=True)
def publish(
    site: Site,
    image: OptionalImage = None,
    all_of: AllOf = None,
    place: Registry = None,
    arch: Annotated[
        list[str] | None,  # Typer accepts no list of a Literal
        arch_option("Architecture to publish (repeatable); all by default."),
    ] = None,
    form: Annotated[
        list[Format] | None,
        typer.Option("--form", help="Format to publish (repeatable); both by default."),
    ] = None,
    sign: Annotated[
        bool, typer.Option(help="Sign the SIF with a key of Apptainer's keyring.")
    ] = True,
    key_index: KeyIndex = None,
    sbom: Annotated[
        Path, typer.Option("--sbom", metavar="DIR", help="Folder for the bills of materials.")
    ] = Path("sbom"),
    name: Annotated[
        Literal["yes", "no", "only"],
        typer.Option(
            "--name", help="Whether the tag of the version is moved to the images; only: they "
                           "are pushed already.",
        ),
    ] = "yes",
    pin: Annotated[
        bool, typer.Option("--pin", help="Write the digests into the recipes with these images.")
    ] = False,
    insecure: Insecure = False,
) -> None:
    """Build, test, sign and push an image for all architectures.

    An image is pushed only if its self-test passes, and its smoke recipe if it has one. The digests
    are written into containers/digests.yaml. If the command was stopped, repeat it: images that the
    registry has already are pulled and tested again, not built.

    Example: trimaran publish torch-cpu --registry ghcr.io/OWNER/trimaran
    """
    from trimaran import paths, publishing
    from trimaran.images import definition
    from trimaran.provenance import registry, signing
    from trimaran.publishing import needs, pins

    one_of(image, all_of)
    paths.refuse_installed(paths.repository())
    models = needs.images_of(all_of) if all_of else [definition.load(str(image))]
    wanted = cast("list[Architecture]", arch or [])  # `arch_option` returns these
    plans = [(model, publishing.choose(model, wanted)) for model in models]
    forms = list(dict.fromkeys(one.value for one in form or Format))
    signs = sign and "sif" in forms and name != "only"
    order = publishing.Order(
        registry=registry.configured(place, site), insecure=insecure, site=site,
        forms=cast("list[Form]", forms),
        key=signing.choose_key(key_index) if signs else None, ask=_asked_once(), materials=sbom,
    )
    for model, architectures in plans:
        if name != "only":
            for one in publishing.publish(model, architectures, order, terminal()):
                say(f"{one.reference}@{one.manifest}")
    if name != "no":
        publishing.name(plans, order, terminal())
    for model, _ in plans if pin else []:
        for path in pins.pin(model, str(order.registry)):
            say(path, err=True)


def _asked_once() -> Callable[[], str]:
    """Return a function that asks for the passphrase at its first call and then remembers it."""
    return functools.cache(ask_passphrase)
