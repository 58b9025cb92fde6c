"""List the contents of the cache, and find items that no definition of this checkout uses.

The names of files in the cache depend on their content. After a change of a definition, the older
images, environments and wheels therefore remain in the cache. They can be built again from an older
checkout, or pulled from their registry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from trimaran import locks, paths
from trimaran.engines import apptainer, image_contents, selection, store
from trimaran.engines.build_steps import LOGS, Storage
from trimaran.engines.host import Host
from trimaran.engines.removal import remove_folder
from trimaran.engines.store import Record
from trimaran.images import compiled, content_hash, definition, wheelhouse
from trimaran.images.bases import assembled_at
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.recipes import library

SCRATCH = ("part-", "view-", "pull-", "base-", "again-")
"""Prefixes of the names of folders in which builds work."""

Kind = Literal["SIF", "OCI", "venv", "files", "base", "objects", "log", "data", "copies"]
State = Literal["in use", "superseded", "left over", "running"]


@dataclass(frozen=True)
class Holding:
    """One item in the cache.

    Attributes:
        kind: kind of the item.
        name: name for display.
        size: size in bytes.
        made: day of creation in UTC.
        state: `in use`: the definitions of this checkout need it; `superseded`: made from older
            definitions; `left over`: damaged, or left by a build or job that was stopped;
            `running`: the definitions do not need it, but a process or a job uses it.
        files: files and folders of the item. The first one marks the item as complete, and is
            removed first.
        stored: record of an image in the storage of an engine; None for an item made of `files`.
        place: path whose lock a process holds while it uses the item (see `locks`).
        user: the process or job that uses the item.
    """

    kind: Kind
    name: str
    size: int
    made: str
    state: State
    files: tuple[Path, ...]
    stored: Record | None = None
    place: Path | None = None
    user: str | None = None

    @property
    def superfluous(self) -> bool:
        """Whether nothing needs the item, so that it may be removed."""
        return self.state in ("superseded", "left over")

    def remove(self) -> None:
        """Remove the item.

        Raises:
            BuildError: a process uses the item, or its engine is missing or fails.
            OSError: a file cannot be removed.
        """
        with locks.removing(self.place) if self.place else nullcontext():
            if self.stored:
                _storages()[self.stored.engine]().remove(self.stored)
            for file in self.files:
                if file.is_dir() and not file.is_symlink():
                    remove_folder(file)
                else:
                    file.unlink(missing_ok=True)


def find() -> list[Holding]:
    """Return all items of the cache: images first, data sets last."""
    defined = definition.every()
    current = {Path(Host().planned(image).reference) for image in defined}
    # Data sets are never superfluous, because a new download takes long.
    data = [_of("data", place, "in use") for place in sorted(paths.cache("data").glob("*"))]
    return [*map(_with_user, _images(defined)),
            *map(_with_user, _kept("venv", "host", current.__contains__)),
            *_packages(defined), *map(_with_user, _bases(defined)),
            *map(_with_user, _objects(defined)), *_logs(), *data]


def _with_user(holding: Holding) -> Holding:
    """Return the item; if it is superfluous but a process uses it, set `state` and `user`."""
    user = locks.user_of(holding.place) if holding.superfluous and holding.place else None
    return replace(holding, state="running", user=user) if user else holding


def _images(defined: list[Image]) -> Iterator[Holding]:
    contents = {image.name: content_hash.contents(image).values() for image in defined}
    pinned = {entry.digest for entry in digests.known()}.union(
        *(library.definition(name).image.digests for name in library.names())
    )
    folder = paths.cache("images")
    known: set[Path] = set()
    storages = _storages()
    for path, record in store.every():
        sif = Path(record.reference)
        own = [folder / sif.name] if sif.parent.resolve() == folder.resolve() else []
        files = (path, image_contents.place(record), *own)
        known.update(files)
        needed = record.content in contents.get(record.name, ()) or record.digest in pinned
        yield Holding(
            "OCI" if record.engine in storages else "SIF",
            f"{record.name}-{record.inputs[:12]}", record.size,
            record.built[:10], "in use" if needed else "superseded", files,
            record if record.engine in storages else None,
            sif if own else None,
        )
    for path in sorted(folder.glob("*")):
        if path not in known and _is_left_over(path):
            yield _of("SIF", path, "left over", apptainer.build_folders(path))


def _storages() -> dict[str, type[Storage]]:
    """Return the engines that keep images in their own storage, by name."""
    engines = selection.containers().items()
    return {name: engine for name, engine in engines if issubclass(engine, Storage)}


def _kept(kind: Kind, folder: str, used: Callable[[Path], bool]) -> Iterator[Holding]:
    """Yield the items in a folder of the cache: complete and damaged ones, leftovers of builds.

    A complete item is `in use` if `used` returns true for its path, otherwise `superseded`.
    """
    for path in sorted(paths.cache(folder).glob("*")):
        if not _is_scratch(path) and not _is_damaged(path):
            yield _of(kind, path, "in use" if used(path) else "superseded")
        elif _is_left_over(path):
            yield _of(kind, path, "left over")


def _packages(defined: list[Image]) -> Iterator[Holding]:
    """Yield one item for the package files that the definitions need, and one for superseded files.

    The files are wheels, Debian packages and sources. Leftovers of builds follow, one item each.
    """
    root = paths.cache("wheelhouse")
    used = set().union(*map(wheelhouse.locked_hashes, defined))
    everything = sorted((root / "files").glob("*"))
    parts: dict[State, list[Path]] = {
        "in use": [folder for folder in everything if folder.name in used],
        "superseded": [folder for folder in everything if folder.name not in used],
    }
    for state, folders in parts.items():
        if folders:
            newest = max(folder.stat().st_mtime for folder in folders)
            yield Holding("files", f"{len(folders)} wheels, Debian packages, sources",
                          sum(map(_size, folders)), _day(newest), state, tuple(folders))
    for view in sorted(root.glob("view-*")):
        if _is_left_over(view):
            yield _of("files", view, "left over")


def _bases(defined: list[Image]) -> Iterator[Holding]:
    needed: list[str] = []
    for image, base in ((image, image.base) for image in defined if image.base is not None):
        suite = base.suite
        needed += [assembled_at(suite, one).stem for one in image.architectures] if suite else []
        needed += [f"-{base.digest.removeprefix('sha256:')[:12]}."] if base.digest else []
    return _kept("base", "bases", lambda path: any(part in path.name for part in needed))


def _objects(defined: list[Image]) -> Iterator[Holding]:
    stages = [image for image in defined if image.build is not None]
    return _kept("objects", "compiled", lambda path: compiled.is_current(path, stages))


def _logs() -> Iterator[Holding]:
    """Yield the output of each build that failed or was stopped, from the next day on."""
    for path in sorted(paths.cache(LOGS).glob("*.log")):
        if _is_left_over(path):
            yield _of("log", path, "left over")


def copies_of(job: str, path: Path, size: int, *, ended: bool | None) -> Holding:
    """Return the cache item for the files that a job copied to the local disk of this machine.

    Args:
        job: number of the job.
        path: folder of the copies.
        size: size in bytes.
        ended: whether the job has ended; None if this is unknown.
    """
    user = None if ended else f"job {job}" if ended is False else f"perhaps job {job}"
    return Holding("copies", str(path), size, _day(path.lstat().st_mtime),
                   "running" if user else "left over", (path,), user=user)


def _of(kind: Kind, path: Path, state: State, files: tuple[Path, ...] = ()) -> Holding:
    files = files or (path,)
    if _is_scratch(path):
        files = (*files, locks.path_of(path))
    return Holding(kind, path.name, sum(map(_size, files)), _day(path.lstat().st_mtime), state,
                   files, place=None if _is_scratch(path) else path)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_symlink() or file.is_file())


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")


def _is_scratch(path: Path) -> bool:
    return path.name.startswith(SCRATCH)


def _is_damaged(path: Path) -> bool:
    return re.search(r"\.damaged(-\d+)?$", path.name) is not None


def _is_left_over(path: Path) -> bool:
    """Return whether a path is damaged, left by an ended build, or unchanged for a day."""
    if _is_scratch(path):
        return locks.left_over(path)
    return _is_damaged(path) or time.time() - path.lstat().st_mtime > locks.STALE_SECONDS
