"""Image model -> `image.def` (Apptainer) and `Dockerfile`, with equal content, through hpccm.

Both files are generated, committed, and compared whole by a test. Neither names a
machine: base, revision and date come as build arguments, packages from a wheelhouse
that is bound at /mnt during the build and never becomes part of the image.
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
    """Write both files into the image's folder, each whole or not at all."""
    paths.refuse_installed(image.folder)
    for file in FILES:
        write_atomic(image.folder / file, text(image, file))


def check(image: Image) -> None:
    """Raise UsageError when a committed file is not what `write` would write."""
    written = {image.folder / file: text(image, file) for file in FILES}
    refuse_stale(written, f"trimaran render {image.name}")


def refuse_stale(written: Mapping[Path, str], command: str) -> None:
    """Raise UsageError when a file has not the text that `command` would write."""
    stale = [
        str(path) for path, text in written.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        raise UsageError(f"not current: {', '.join(stale)}", hint=f"run `{command}`")
