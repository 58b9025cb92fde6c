"""Compute one hash of everything that an image is made from."""

from __future__ import annotations

import hashlib
import json

from trimaran.files import sha256
from trimaran.images import definition
from trimaran.images.definition import Image

_LOCKS = ("debian.lock", "build-debian.lock", "requirements.lock")


def content_of(image: Image) -> str:
    """Return a SHA-256 over all inputs of `image` that are in the checkout.

    The inputs are the rendered definition, the files, the locks and the sources of the packages,
    and those of its framework image. The base image is not in the checkout; engines add its
    digest.
    """
    parts: dict[str, str] = {}
    for part in definition.chain(image):
        for name in ("image.def", *_LOCKS, *part.files):
            path = definition.file_of(part, name)
            parts[f"{part.name}/{name}"] = sha256(path) if path.is_file() else "absent"
        for path in definition.build_files(part):
            parts[f"{part.name}/build/{path.name}"] = sha256(path)
        for source in part.build.sources if part.build else ():
            parts[f"{part.name}/{source.url}"] = source.sha256
        for package in part.app.packages if part.app else ():
            parts |= _sources(package)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _sources(package: str) -> dict[str, str]:
    folder = definition.package_folder(package)
    sources = [folder / "pyproject.toml", folder / "README.md", *(folder / "src").rglob("*")]
    return {
        f"{package}/{path.relative_to(folder)}": sha256(path)
        for path in sources
        if path.is_file() and "__pycache__" not in path.parts
    }
