"""Choose the wheels of an image: for each locked requirement, the most specific usable wheel."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import ConfigDict, TypeAdapter, with_config

from trimaran import paths
from trimaran.errors import BuildError
from trimaran.files import make_folder, set_aside, write_atomic
from trimaran.images import definition, indexes, lock
from trimaran.images.definition import Image
from trimaran.images.parts import Python
from trimaran.reporting import Reporter

PARALLEL = 4

# Debian 12 has glibc 2.36, which runs wheels for this version and for older ones.
_GLIBC_MINOR = 36
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Item:
    """One locked file: folder in a wheelhouse, name, SHA-256, size in bytes and addresses."""

    folder: str
    filename: str
    sha256: str
    size: int | None
    urls: tuple[str, ...]

    @property
    def kept(self) -> Path:
        """The path of the file in the cache."""
        return paths.cache("wheelhouse", "files", self.sha256) / self.filename


_ITEMS = TypeAdapter(list[Item])


def locked(image: Image, python: Python, offline: bool, reporter: Reporter) -> list[Item]:
    """Return the wheels of the lock of `image` for `python`; none if the image has no lock.

    A lock accepts several wheels for a requirement, and the package index is needed to choose
    one. The choice is stored in the cache, so that later builds need no network.

    Raises:
        BuildError: An index offers no usable wheel, or `offline` is set and no choice is stored.
    """
    file = definition.wheels_lock(image)
    if file is None:
        return []
    wanted = _wanted(file, python)
    known = _choice(file, python)
    if os.path.lexists(known):
        try:
            return _read_choice(known, wanted)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            reporter.warn(f"{known} is damaged ({reason}); renamed to {set_aside(known).name}")
    if offline:
        raise BuildError(
            f"the cache has no wheels of {image.name}, and --offline was given",
            code="download-offline", hint=f"run `trimaran fetch {image.name}` with a network",
        )
    items = _select(wanted, python, reporter)
    make_folder(known.parent, reporter)
    write_atomic(known, json.dumps([asdict(item) for item in items], indent=1) + "\n")
    return items


def chosen(image: Image) -> list[Item]:
    """Return the wheels that an earlier call has chosen for `image`; empty if it stored none."""
    file, python = definition.wheels_lock(image), definition.interpreter(image)
    if file is None:
        return []
    try:
        return _read_choice(_choice(file, python), _wanted(file, python))
    except (OSError, ValueError):
        return []


def _read_choice(known: Path, wanted: list[lock.Locked]) -> list[Item]:
    """Return the wheels in the file `known`: one for each requirement, with a locked hash.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged, or a wheel does not fit its requirement.
    """
    items = _ITEMS.validate_json(known.read_bytes())
    for item, entry in zip(items, wanted, strict=True):
        name, *_ = parse_wheel_filename(item.filename)
        named = item.folder == "wheels" and name == canonicalize_name(entry.name)
        if not named or item.sha256 not in entry.hashes:
            raise ValueError(f"{item.filename} does not fit the locked {entry.name}")
    return items


def _wanted(file: Path, python: Python) -> list[lock.Locked]:
    """Return the requirements of a lock that apply to `python`."""
    return [entry for entry in lock.read(file) if entry.applies_to(python.version)]


def _choice(file: Path, python: Python) -> Path:
    """Return the path of the stored choice of wheels for a lock."""
    text = file.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{python.version}\n{text}".encode()).hexdigest()
    return paths.cache("wheelhouse", "resolved", f"{key[:16]}.json")


def _select(wanted: list[lock.Locked], python: Python, reporter: Reporter) -> list[Item]:
    """Return the best wheel with a locked hash for each requirement, in their order."""
    sources = indexes.configured()
    tags = supported_tags(python.version)
    elsewhere = {
        wheel.sha256: indexes.File(lock.file_name(wheel), wheel.url, wheel.sha256, None)
        for wheel in python.elsewhere
    }
    def choose(entry: lock.Locked) -> Item:
        own = [file for hash_, file in elsewhere.items() if hash_ in entry.hashes]
        offered = own or sources.files(entry.name)
        return best(entry, offered, tags, sources)

    with ThreadPoolExecutor(PARALLEL) as pool:
        items = list(pool.map(choose, wanted))
    for index, reason in sources.silent.items():
        reporter.warn(f"{index} did not answer ({reason}) and was skipped")
    return items


def best(
    entry: lock.Locked,
    offered: Iterable[indexes.File],
    tags: dict[Tag, int],
    sources: indexes.Sources,
) -> Item:
    """Return the most specific wheel among `offered` with a locked hash and a supported tag.

    Args:
        entry: the locked requirement.
        offered: files of the package indexes.
        tags: supported tag -> rank; the lowest rank is the most specific.
        sources: indexes and folders, for addresses and messages.

    Raises:
        BuildError: No offered file is such a wheel.
    """
    ranked: list[tuple[int, indexes.File]] = []
    for file in offered:
        if file.sha256 not in entry.hashes:
            continue
        try:
            name, _, _, wheel_tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue  # a source archive; images install only wheels
        ranks = [tags[tag] for tag in wheel_tags if tag in tags]
        if ranks and name == canonicalize_name(entry.name):
            ranked.append((min(ranks), file))
    if not ranked:
        silent = "".join(f"\n  {index}: {why}" for index, why in sources.silent.items())
        raise BuildError(
            f"{entry.name}=={entry.version}: no package index offers a wheel with a locked hash"
            f"{silent}", code="wheel-missing",
            hint="pip's configuration names the indexes: " + ", ".join(sources.indexes),
        )
    rank = min(rank for rank, _ in ranked)
    same = [file for other, file in ranked if other == rank]
    urls = (*sources.local(same[0].filename), *dict.fromkeys(file.url for file in same))
    return Item("wheels", same[0].filename, same[0].sha256, same[0].size, urls)


def supported_tags(python: str) -> dict[Tag, int]:
    """Return supported wheel tag -> rank for CPython `python` ("3.11"); the best rank is 0."""
    version = [int(part) for part in python.split(".")]
    platforms = []
    for minor in range(_GLIBC_MINOR, 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        if minor in _OLD_NAMES:
            platforms.append(f"{_OLD_NAMES[minor]}_x86_64")
    platforms.append("linux_x86_64")
    tags = [*cpython_tags(version, platforms=platforms),
            *compatible_tags(version, platforms=platforms)]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}
