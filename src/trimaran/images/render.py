"""Render an image definition as `image.def` (Apptainer) and `Dockerfile`, by means of hpccm.

Both files are committed, and a test compares them with the rendered text. They depend on no
machine: base image, revision and date are build arguments, and packages come from a wheelhouse,
which is mounted at /mnt during the build and does not become part of the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trimaran import paths
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.images import stages
from trimaran.images.definition import Image
from trimaran.images.primitives import container_format

FILES = {"image.def": "singularity", "Dockerfile": "docker"}
"""Generated file -> hpccm's name of the format."""


def text(image: Image, file: str) -> str:
    """Return the content of `file` ("image.def" or "Dockerfile") for `image`."""
    with container_format(FILES[file]):
        parts = [str(part) for part in stages.parts(image, docker=file == "Dockerfile")]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(image: Image) -> None:
    """Write both files into the image's folder, each atomically."""
    paths.refuse_installed(image.folder)
    for file in FILES:
        write_atomic(image.folder / file, text(image, file))


def check(image: Image) -> None:
    """Raise UsageError if a committed file differs from the text that `write` writes."""
    written = {image.folder / file: text(image, file) for file in FILES}
    refuse_stale(written, f"trimaran render {image.name}")


def refuse_stale(written: Mapping[Path, str], command: str) -> None:
    """Raise UsageError if a file differs from the text that `command` writes."""
    stale = [
        str(path) for path, text in written.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        raise UsageError(f"not up to date: {', '.join(stale)}", code="file-outdated",
                         hint=f"run `{command}`")
