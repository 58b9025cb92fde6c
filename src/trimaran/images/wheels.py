"""Which wheels an image takes from its lock: one for each requirement, the best that runs there."""

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

# Debian 12 has glibc 2.36: wheels for it or anything older run there.
_GLIBC_MINOR = 36
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Item:
    """One locked file: where it belongs in a view, its hash, and where it can be had."""

    folder: str
    filename: str
    sha256: str
    size: int | None
    urls: tuple[str, ...]

    @property
    def kept(self) -> Path:
        """Its place in the cache."""
        return paths.cache("wheelhouse", "files", self.sha256) / self.filename


_ITEMS = TypeAdapter(list[Item])


def locked(image: Image, python: Python, offline: bool, reporter: Reporter) -> list[Item]:
    """Return the wheels that `python` takes from the lock of `image`, none if it has no lock.

    Which of the accepted hashes that is needs the index once; the answer is kept
    beside the files, so that the next build can be offline.
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
            reporter.warn(f"{known} is damaged ({reason}); set aside as {set_aside(known).name}")
    if offline:
        raise BuildError(
            f"the wheels of {image.name} were never fetched here",
            hint=f"run `trimaran fetch {image.name}` once with a network",
        )
    items = _select(wanted, python, reporter)
    make_folder(known.parent, reporter)
    write_atomic(known, json.dumps([asdict(item) for item in items], indent=1) + "\n")
    return items


def chosen(image: Image) -> list[Item]:
    """Return the wheels that were chosen for `image` when it was fetched; none if never here."""
    file, python = definition.wheels_lock(image), definition.interpreter(image)
    if file is None:
        return []
    try:
        return _read_choice(_choice(file, python), _wanted(file, python))
    except (OSError, ValueError):
        return []


def _read_choice(known: Path, wanted: list[lock.Locked]) -> list[Item]:
    """Return the wheels that the file names: one for each requirement, with a hash of the lock.

    Raises:
        OSError, ValueError: it cannot be read, or names something else.
    """
    items = _ITEMS.validate_json(known.read_bytes())
    for item, entry in zip(items, wanted, strict=True):
        name, *_ = parse_wheel_filename(item.filename)
        named = item.folder == "wheels" and name == canonicalize_name(entry.name)
        if not named or item.sha256 not in entry.hashes:
            raise ValueError(f"{item.filename} is not what the lock has for {entry.name}")
    return items


def _wanted(file: Path, python: Python) -> list[lock.Locked]:
    """Return the requirements that `python` takes from a lock."""
    return [entry for entry in lock.read(file) if entry.applies_to(python.version)]


def _choice(file: Path, python: Python) -> Path:
    """Return the file that says which wheels were chosen from a lock."""
    text = file.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{python.version}\n{text}".encode()).hexdigest()
    return paths.cache("wheelhouse", "resolved", f"{key[:16]}.json")


def _select(wanted: list[lock.Locked], python: Python, reporter: Reporter) -> list[Item]:
    """Choose, for each locked requirement, the best wheel whose hash the lock has."""
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
        reporter.warn(f"{index} did not answer ({reason}); went on without it")
    return items


def best(
    entry: lock.Locked,
    offered: Iterable[indexes.File],
    tags: dict[Tag, int],
    sources: indexes.Sources,
) -> Item:
    """Return the most specific wheel among `offered` that the lock and the image accept.

    Raises:
        BuildError: there is none.
    """
    ranked: list[tuple[int, indexes.File]] = []
    for file in offered:
        if file.sha256 not in entry.hashes:
            continue
        try:
            name, _, _, wheel_tags = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue  # a source archive: images install wheels only
        ranks = [tags[tag] for tag in wheel_tags if tag in tags]
        if ranks and name == canonicalize_name(entry.name):
            ranked.append((min(ranks), file))
    if not ranked:
        silent = "".join(f"\n  {index}: {why}" for index, why in sources.silent.items())
        raise BuildError(
            f"{entry.name}=={entry.version}: no index here offers a wheel with a hash of the lock"
            f"{silent}",
            hint="asked: " + ", ".join(sources.indexes),
        )
    rank = min(rank for rank, _ in ranked)
    same = [file for found, file in ranked if found == rank]
    urls = (*sources.local(same[0].filename), *dict.fromkeys(file.url for file in same))
    return Item("wheels", same[0].filename, same[0].sha256, same[0].size, urls)


def supported_tags(python: str) -> dict[Tag, int]:
    """Return the wheel tags that CPython `python` ("3.11") in the image takes, best first."""
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
