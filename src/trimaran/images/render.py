"""Image model -> `image.def` (Apptainer) and `Dockerfile`, with equal content, through hpccm.

Both files are generated, committed, and compared whole by a test. Neither names a
machine: base, revision and date come as build arguments, packages from a wheelhouse
that is bound at /mnt during the build and never becomes part of the image.
"""

from __future__ import annotations

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
    stale = []
    for file in FILES:
        path = image.folder / file
        if not path.is_file() or path.read_text(encoding="utf-8") != text(image, file):
            stale.append(str(path))
    if stale:
        raise UsageError(
            f"not current: {', '.join(stale)}", hint=f"run `trimaran render {image.name}`"
        )
