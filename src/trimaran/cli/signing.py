"""Commands on signatures: `sign` and `verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.common import app, command, complete, load_image, say, terminal

if TYPE_CHECKING:
    from trimaran.site_file import Site


ImageOrFile = Annotated[
    str,
    typer.Argument(
        metavar="IMAGE|FILE.sif", autocompletion=complete("images"), show_default=False,
        help="A built image, or a SIF file anywhere.",
    ),
]


@command(app)
def sign(
    image: ImageOrFile,
    key_index: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default=False,
            help="Number of the private key in `apptainer key list --secret`.",
        ),
    ] = None,
) -> None:
    """Sign a SIF file with a private key of Apptainer's keyring.

    The signature becomes part of the file and changes its digest: push and pin the new digest,
    which is printed. The passphrase is read from the terminal, or from standard input.

    Example: trimaran sign resnet-imagenet-torch-cpu

    Example: trimaran sign image.sif --key-index 1
    """
    from trimaran.provenance import signing

    file = _file(image)
    key = signing.choose_key(key_index)
    digest = signing.sign(file, key, _ask)
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
) -> None:
    """Verify the signature of a SIF file, and show the signer.

    Without --key and without keys in the site file, any key of Apptainer's own keyring is
    accepted. No key server is asked. Exits with 4 when the signature does not hold.

    Example: trimaran verify resnet-imagenet-torch-cpu

    Example: trimaran verify image.sif --key 0123456789ABCDEF0123456789ABCDEF01234567
    """
    from trimaran import site_file
    from trimaran.provenance import signing

    known = site.signatures.keys
    wanted = [site_file.fingerprint(text) for text in key or []] or known
    with terminal().bar(f"verifying {image}", None):
        file = _file(image)
        signer = signing.require(file, [wanted] if wanted else [])
    say(f"{file}: signed by {signer.fingerprint} ({signer.owner}), unchanged since")


def _file(name: str) -> Path:
    """Return the path of a SIF file: `name` itself, or the file of the image `name` in the cache.

    Raises:
        UsageError: `name` is a path that does not exist.
    """
    from trimaran.errors import UsageError
    from trimaran.provenance import signing

    path = Path(name)
    if name.endswith(".sif") or "/" in name:
        if not path.is_file():
            raise UsageError(f"{name} does not exist", code="file-missing",
                             hint="name a SIF file, or an image of `trimaran list images`")
        return path.absolute()
    return signing.file_of(load_image(name))


def _ask() -> str:
    """Return the passphrase from a hidden prompt on a terminal, or else from standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt("Passphrase of the key", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")
