"""Identify an image by the content of its definition: a hash, and the tags made from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from trimaran.architectures import Architecture
from trimaran.files import sha256
from trimaran.images import definition
from trimaran.images.definition import Image

TAG_DIGITS = 16
"""Number of hexadecimal digits of a content hash in a tag."""


def content_of(image: Image) -> str:
    """Return a SHA-256 over all inputs of `image` that are in the checkout.

    The inputs are the rendered definition, the files, the locks and the sources of the packages,
    and the same inputs of its framework image. The base image is not in the checkout; engines add
    its digest.
    """
    parts: dict[str, str] = {"architecture": image.architecture}
    for part in definition.chain(image):
        files = {name: _hash_of(definition.file_of(part, name))
                 for name in ("image.def", *part.files)}
        parts |= {f"{part.name}/{name}": found for name, found in (files | inputs_of(part)).items()}
        for package in part.app.packages if part.app else ():
            parts |= _sources(package)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def inputs_of(part: Image) -> dict[str, str]:
    """Return the SHA-256 of each input that the first build stage of an image can have.

    The keys are the file names of the locks, `build/NAME` of the files in `containers/build`, and
    the addresses of the downloaded sources.

    Args:
        part: an app image or a framework image; the inputs of the other one are not included.
    """
    return {
        **{name: _hash_of(part.folder / name) for name in definition.locks(part)},
        **{f"build/{path.name}": sha256(path) for path in definition.build_files(part)},
        **{source.url: source.sha256 for source in definition.build_sources(part)},
    }


def contents(image: Image) -> dict[Architecture, str]:
    """Return for each architecture of `image` the SHA-256 over its inputs (see `content_of`)."""
    supported = definition.chain(image)[0].architectures
    return {one: content_of(definition.on(image, one)) for one in supported}


def content_tag(image: Image) -> str:
    """Return the tag made from the content of `image`: hash (`content_of`) and architecture.

    Another definition has another tag, so that a registry need never move such a tag.
    """
    return f"{content_of(image)[:TAG_DIGITS]}-{image.architecture}"


def index_tag(image: Image) -> str:
    """Return the tag that names the images for all architectures of `image` by their content."""
    together = json.dumps(contents(image), sort_keys=True)
    return hashlib.sha256(together.encode()).hexdigest()[:TAG_DIGITS]


def _hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, or "absent" if there is none."""
    return sha256(path) if path.is_file() else "absent"


def _sources(package: str) -> dict[str, str]:
    folder = definition.package_folder(package)
    sources = [folder / "pyproject.toml", folder / "README.md", *(folder / "src").rglob("*")]
    return {
        f"{package}/{path.relative_to(folder)}": sha256(path)
        for path in sources
        if path.is_file() and "__pycache__" not in path.parts
    }
