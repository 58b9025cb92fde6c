"""Commands of the supply chain: `sbom`, `audit`, `push`, `pull`, `sign` and `verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import (
    Arch,
    EngineName,
    ImageName,
    Json,
    app,
    command,
    complete,
    emit,
    load_image,
    say,
    terminal,
)
from trimaran.engines import selection
from trimaran.errors import ExitCode, UsageError
from trimaran.files import write_atomic

if TYPE_CHECKING:
    from trimaran.architectures import Architecture
    from trimaran.site_file import Site


@command(app, "sbom")
def list_materials(
    image: ImageName,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="File to write; not overwritten.")
    ],
    engine: EngineName = "auto",
    arch: Arch = None,
) -> None:
    """Write the software bill of materials of an image (CycloneDX).

    It lists every Debian and Python package with its version, licences and the hash of its file.

    Example: trimaran sbom torch-cpu -o torch-cpu.cdx.json
    """
    from trimaran.engines import image_contents, require
    from trimaran.provenance import sbom

    if out.exists():
        raise UsageError(f"{out} exists", code="file-exists",
                         hint="remove it first, or write to another file")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is not a folder", code="file-missing",
                         hint="make the folder first")
    model, chosen = load_image(image, arch), selection.select(engine)
    with terminal().bar(f"examining {image}", None):
        contents = image_contents.of(chosen, require(chosen, model))
    write_atomic(out, sbom.text(contents, sbom.locked_hashes(model)))
    say(f"{out}: {len(contents.debian)} Debian and {len(contents.python)} Python packages")


@command(app, "audit", network=True)
def audit_image(image: ImageName, arch: Arch = None, as_json: Json = False) -> None:
    """Look up known vulnerabilities of an image's Python packages.

    pip-audit queries PyPI; Debian packages are not looked up. Exits with 1 when a vulnerability is
    known, and with 4 when the service cannot be reached.

    Example: trimaran audit torch-cpu
    """
    from trimaran.provenance import audit

    reporter = terminal()
    with reporter.bar("querying known vulnerabilities", None):
        audited = audit.audit(load_image(image, arch))
    rows = [
        {"package": v.package, "version": v.version, "advisory": ", ".join(v.names),
         "fixed in": ", ".join(v.fixed) or "nothing yet"}
        for v in audited.vulnerabilities
    ]
    if rows or as_json:
        emit(rows, f"{image}: known vulnerabilities", as_json)
    for name, reason in audited.skipped.items():
        reporter.warn(f"{name} was not checked: {reason}")
    reporter.note(
        f"{image}: {len(rows)} known vulnerabilities in {audited.checked} Python packages"
        f" ({len(audited.skipped)} not checked; Debian packages are not part of this)"
    )
    if rows:
        raise typer.Exit(ExitCode.FAIL)


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


OptionalImage = Annotated[
    str | None,
    typer.Argument(metavar="IMAGE", autocompletion=complete("images"), show_default=False),
]
AllOf = Annotated[
    str | None,
    typer.Option(
        "--all-of", metavar="RECIPE", autocompletion=complete("recipes"), show_default=False,
        help="The images of a recipe, instead of one image.",
    ),
]


def one_of(image: str | None, recipe: str | None) -> None:
    """Check that the user named either an image or a recipe.

    Raises:
        UsageError: Both or neither are named.
    """
    if (image is None) == (recipe is None):
        raise UsageError("name either IMAGE or --all-of RECIPE",
                         code="argument-missing" if image is None else "arguments-conflict",
                         hint="`trimaran list images` and `trimaran list recipes` list them")


@command(app, network=True)
def push(
    site: Site,
    image: ImageName,
    place: Registry = None,
    engine: EngineName = "auto",
    arch: Arch = None,
    insecure: Insecure = False,
) -> None:
    """Push a built image to a registry, and record its digest.

    The engine determines the form: apptainer pushes the SIF (oras://), podman the OCI image
    (docker://). The tag is made from the content of the image and is never moved; the tag of the
    version then names the images for all architectures. The digest that the registry confirms is
    recorded in ~/.local/state/trimaran/digests.yaml, where `pull` looks it up. Log in with
    `apptainer registry login` or `podman login`.

    Example: trimaran push torch-cpu --registry ghcr.io/OWNER/trimaran
    """
    from trimaran.provenance import registry

    where = registry.configured(place, site)
    pushed = registry.push(
        load_image(image, arch), selection.select(engine), registry=where, insecure=insecure,
        reporter=terminal(),
    )
    say(f"{pushed.reference}@{pushed.manifest}")


@command(app, network=True)
def pull(
    site: Site,
    image: OptionalImage = None,
    place: Registry = None,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="sha256:HEX",
            help="Digest of the image, its manifest or an index, instead of the recorded one.",
        ),
    ] = None,
    engine: EngineName = "auto",
    arch: Arch = None,
    all_of: AllOf = None,
    insecure: Insecure = False,
) -> None:
    """Download a published image by its digest.

    With --all-of, the images are those of the recipe and of the recipes from which it starts. They
    are for the cluster's nodes if the site file states their architecture. Otherwise, they are for
    this machine if `trimaran run` starts the recipe, and for the nodes of its target if only a
    batch system can. An interrupted download is resumed. The image is used only after its digest
    was verified.

    Example: trimaran pull torch-cpu --registry ghcr.io/OWNER/trimaran

    Example: trimaran pull --all-of resnet-imagenet/cpu-quickstart
    """
    from trimaran import architectures
    from trimaran.cluster import submission
    from trimaran.provenance import registry
    from trimaran.publishing import needs

    one_of(image, all_of)
    if all_of and digest:
        raise UsageError("--digest is for one image, not for --all-of", code="arguments-conflict",
                         hint="leave out --digest: the digests of recipes are used")
    where, chosen = registry.configured(place, site), selection.select(engine)
    _, cluster = submission.choose(site, None)
    wanted = (
        needs.of_recipe(all_of, arch or cluster.architecture, chosen) if all_of
        else [(load_image(str(image), arch), digest)]
    )
    for model, pinned in wanted:
        if arch is None and model.architecture != architectures.native():
            say(f"{model.name} for {model.architecture}; --arch names another architecture",
                err=True)
        built = registry.pull(
            model, chosen, registry=where, digest=pinned, insecure=insecure, reporter=terminal(),
        )
        say(f"{built.reference} {built.digest}")


ImageOrFile = Annotated[
    str,
    typer.Argument(
        metavar="IMAGE|FILE.sif", autocompletion=complete("images"), show_default=False,
        help="A built image, or a SIF file anywhere.",
    ),
]


KeyIndex = Annotated[
    int | None,
    typer.Option(
        metavar="N", show_default=False,
        help="Number of the private key in `apptainer key list --secret`.",
    ),
]


@command(app)
def sign(image: ImageOrFile, key_index: KeyIndex = None, arch: Arch = None) -> None:
    """Sign a SIF file with a private key of Apptainer's keyring.

    The signature becomes part of the file and changes its digest: push and pin the new digest,
    which is printed. The passphrase is read from the terminal, or from standard input.

    Example: trimaran sign resnet-imagenet-torch-cpu

    Example: trimaran sign image.sif --key-index 1
    """
    from trimaran.provenance import signing

    file = _file(image, arch)
    key = signing.choose_key(key_index)
    digest = signing.sign(file, key, ask_passphrase)
    say(f"signed by {key.fingerprint} ({key.owner})", err=True)
    say(f"{digest}  {file}")


@command(app)
def verify(
    site: Site,
    image: ImageOrFile,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Accept only this signer (repeatable); default: the signers of the site file.",
        ),
    ] = None,
    arch: Arch = None,
) -> None:
    """Verify the signature of a SIF file, and show the signer.

    Without --key and without keys in the site file, any key of Apptainer's own keyring is
    accepted. No key server is asked. Exits with 4 when no signature is valid and accepted.

    Example: trimaran verify resnet-imagenet-torch-cpu

    Example: trimaran verify image.sif --key 0123456789ABCDEF0123456789ABCDEF01234567
    """
    from trimaran import site_file
    from trimaran.provenance import signing

    known = site.signatures.keys
    wanted = [site_file.fingerprint(text) for text in key or []] or known
    with terminal().bar(f"verifying {image}", None):
        file = _file(image, arch)
        signer = signing.require(file, [wanted] if wanted else [])
    say(f"{file}: signed by {signer.fingerprint} ({signer.owner}), unchanged since")


def _file(name: str, architecture: Architecture | None) -> Path:
    """Return the SIF file `name`, or the cached SIF file of the image called `name`.

    Raises:
        UsageError: the file does not exist, or `architecture` is given together with a file.
    """
    from trimaran.provenance import signing

    path = Path(name)
    if name.endswith(".sif") or "/" in name:
        if not path.is_file():
            raise UsageError(f"{name} does not exist", code="file-missing",
                             hint="name a SIF file, or an image of `trimaran list images`")
        if architecture is not None:
            raise UsageError("--arch is for an image by its name, not for a file",
                             code="arguments-conflict", hint="leave out --arch")
        return path.absolute()
    return signing.file_of(load_image(name, architecture))


def ask_passphrase() -> str:
    """Return the passphrase from a hidden prompt on a terminal, or else from standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt("Passphrase of the key", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")
