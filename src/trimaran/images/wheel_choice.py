"""Choose, for a locked requirement, the most specific wheel that an image can install."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from trimaran.architectures import MACHINES, Architecture
from trimaran.errors import BuildError
from trimaran.images import definition, indexes, lock
from trimaran.images.definition import Image
from trimaran.images.parts import Python

PARALLEL = 4
"""Number of requests to package indexes, or of downloads, at a time."""

REMEDY = ("choose another version of the package, or give it a marker such as platform_machine =="
          " 'x86_64', in requirements.in or overrides.txt")
"""Hint for a package that has no wheel for an architecture."""

# Debian 12 has glibc 2.36, which runs wheels for this version and for older ones.
_GLIBC_MINOR = 36
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def offered(entry: lock.Locked, python: Python, sources: indexes.Sources) -> list[indexes.File]:
    """Return the files that can be those of the requirement `entry`.

    They are the wheels that the definition of the image names, or else the files of the indexes.
    """
    own = [
        indexes.File(lock.file_name(wheel), wheel.url, wheel.sha256, None)
        for wheel in python.elsewhere if wheel.sha256 in entry.hashes
    ]
    return own or list(sources.files(entry.name))


def best(
    entry: lock.Locked, files: Iterable[indexes.File], tags: dict[Tag, int]
) -> list[indexes.File]:
    """Return the most specific wheel among `files` with a locked hash and a supported tag.

    The list has several files if several indexes offer the wheel; it is empty if none does.

    Args:
        entry: the locked requirement.
        files: files of the package indexes.
        tags: supported tag -> rank; the lowest rank is the most specific.
    """
    ranked: list[tuple[int, indexes.File]] = []
    for file in files:
        if file.sha256 not in entry.hashes:
            continue
        try:
            name, _, _, wheel_tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue  # a source archive; images install only wheels
        ranks = [tags[tag] for tag in wheel_tags if tag in tags]
        if ranks and name == canonicalize_name(entry.name):
            ranked.append((min(ranks), file))
    rank = min((rank for rank, _ in ranked), default=None)
    return [file for other, file in ranked if other == rank]


def supported_tags(python: str, architecture: Architecture) -> dict[Tag, int]:
    """Return the rank of each supported wheel tag for CPython `python` ("3.11"); 0 is the best."""
    machine = MACHINES[architecture]
    version = [int(part) for part in python.split(".")]
    platforms = []
    for minor in range(_GLIBC_MINOR, 4, -1):
        platforms.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLD_NAMES:
            platforms.append(f"{_OLD_NAMES[minor]}_{machine}")
    platforms.append(f"linux_{machine}")
    tags = [*cpython_tags(version, platforms=platforms),
            *compatible_tags(version, platforms=platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def require_all(image: Image, entries: Sequence[lock.Locked]) -> None:
    """Check that a new lock of `image` has a wheel of each package for each of its architectures.

    Args:
        image: the image.
        entries: the requirements of the new lock.

    Raises:
        BuildError: The package indexes offer no wheel for an architecture on which a package is
            needed; the message names all such packages.
    """
    framework, python, sources = (
        definition.chain(image)[0], definition.interpreter(image), indexes.configured()
    )
    tags = {one: supported_tags(python.version, one) for one in framework.architectures}

    def lacking(entry: lock.Locked) -> list[str]:
        files = offered(entry, python, sources)
        return [
            f"{entry.name}=={entry.version} for {architecture}"
            for architecture in framework.architectures
            if entry.applies_to(python.version, architecture)
            and not best(entry, files, tags[architecture])
        ]

    with ThreadPoolExecutor(PARALLEL) as pool:
        missing = [line for lines in pool.map(lacking, entries) for line in lines]
    if missing:
        raise BuildError(
            f"{image.name} is defined for {' and '.join(framework.architectures)} in"
            f" {framework.folder / 'image.yaml'}, but no package index offers a wheel with Python"
            f" {python.version} of\n  " + "\n  ".join(missing) + silent(sources),
            code="wheel-missing", hint=REMEDY,
        )


def silent(sources: indexes.Sources) -> str:
    """Return lines for an error message that list the indexes which did not answer, if any."""
    return "".join(f"\n  {index}: {why}" for index, why in sources.silent.items())
