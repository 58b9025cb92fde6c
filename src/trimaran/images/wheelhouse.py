"""The wheelhouse: exactly the locked files of an image, verified, for an offline build.

Files lie in the cache by their SHA-256, shared between images. `fetch` gets what is
missing and checks every byte of what is there; `view` lays out the files of one
image, as hard links, in the folder that a build sees at /mnt:

    wheels/*.whl  debs/*.deb  apps/*.whl  requirements.lock
    build/debs/*.deb  build/*             what only the first stage sees
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.tags import Tag, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import ConfigDict, TypeAdapter, with_config

from trimaran import locks, paths, process
from trimaran.errors import BuildError, Interrupted
from trimaran.files import check_space, make_folder, set_aside, write_atomic
from trimaran.images import debian, definition, indexes, lock
from trimaran.images.definition import Image, package_folder
from trimaran.net.download import fetch as download
from trimaran.reporting import Advance, Reporter, Silent

PARALLEL = 4
EPOCH = "1577836800"
"""Time stamp inside the wheels of our own packages (2020-01-01), so that equal sources
give equal files; SOURCE_DATE_EPOCH in the environment takes its place."""

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


def fetch(
    image: Image, *, offline: bool, reporter: Reporter, python: str | None = None
) -> list[Item]:
    """Make sure that every locked file of `image` is in the cache and right.

    Args:
        image: the image; an app image has none of its own.
        offline: never touch the network.
        reporter: is told of progress and of sources that do not answer.
        python: only the wheels, for this version of Python: the host engine's needs.

    Raises:
        BuildError: a file cannot be had, or is not what the lock says (both hashes are named).
    """
    if image.kind == "app":
        return []  # its packages are built from this repository, the rest is in the framework
    if python is None:
        items = [*_debs(image), *_wheels(image, offline, reporter), *_sources(image)]
    else:
        items = _wheels(image.with_python(python), offline, reporter)
    missing = [item for item in items if not item.kept.is_file()]
    root = paths.cache("wheelhouse")
    root.mkdir(parents=True, exist_ok=True)
    check_space(root, sum(item.size or 0 for item in missing), "the wheelhouse", BuildError)
    if missing:
        reporter.note(f"  fetching {len(missing)} of {len(items)} files of {image.name}")
    title = f"wheelhouse of {image.name}"
    with (
        reporter.bar(title, len(items), unit="files") as advance,
        ThreadPoolExecutor(PARALLEL) as pool,
    ):
        quiet = _Quiet(reporter)
        tasks = [pool.submit(_get, item, offline, quiet) for item in items]
        try:
            for task in tasks:
                task.result()
                advance(1)
        except BaseException:
            quiet.stopped = True  # ends the downloads under way; each can be resumed
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return items


def locked_hashes(image: Image) -> set[str]:
    """Return the SHA-256 of every file that the locks of `image` accept, for any Python."""
    if image.kind == "app":
        return set()
    wheels = lock.read(image.folder / "requirements.lock") if image.python else []
    return {hash_ for entry in wheels for hash_ in entry.hashes} | {
        item.sha256 for item in (*_debs(image), *_sources(image))
    }


def _get(item: Item, offline: bool, reporter: Reporter) -> None:
    download(item.urls, item.kept, sha256=item.sha256, size=item.size, offline=offline,
             reporter=reporter, error=BuildError)


class _Quiet(Silent):
    """Reporter of the single downloads: one bar for all says more than eighty of their own."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.stopped = False
        self._reporter = reporter

    def warn(self, text: str) -> None:
        """Pass on `text`."""
        self._reporter.warn(text)

    @contextmanager
    def bar(
        self, description: str, total: float | None, *, unit: str = "", done: float = 0
    ) -> Iterator[Advance]:
        """Show nothing, but end the download when the others were stopped."""
        def advance(amount: float) -> None:
            if self.stopped:
                raise Interrupted("stopped with the other downloads")

        yield advance


@contextmanager
def view(image: Image, items: Iterable[Item]) -> Iterator[Path]:
    """Lay out the files of one image for a build; gone afterwards.

    Every file is verified by `fetch` before; the build's pip checks the wheels again.
    """
    with locks.scratch(paths.cache("wheelhouse"), "view-") as folder:
        folder.chmod(0o755)  # also readable for the build's mapped users
        lay_out(image, items, folder)
        yield folder


def lay_out(image: Image, items: Iterable[Item], folder: Path) -> None:
    """Lay out the files of one image in `folder`, as the module's docstring shows."""
    for item in items:
        place = folder / item.folder / item.filename
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        _link(item.kept, place)
    if image.kind == "framework":
        shutil.copy(image.folder / "requirements.lock", folder)
    for path in definition.build_files(image):
        (folder / "build").mkdir(exist_ok=True)
        shutil.copy(path, folder / "build")
    for package in image.app.packages if image.app else ():
        build_wheel(package, folder / "apps")


def build_wheel(package: str, destination: Path) -> Path:
    """Build the wheel of `apps/<package>` into `destination`; equal sources give equal bytes.

    Raises:
        BuildError: its build failed.
    """
    destination.mkdir(parents=True, exist_ok=True)
    before = set(destination.glob("*.whl"))
    env = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    process.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(destination)],
        env=env, cwd=package_folder(package), check=BuildError,
    )
    made = set(destination.glob("*.whl")) - before
    if len(made) != 1:
        raise BuildError(f"building {package} gave {len(made)} wheels instead of one")
    return made.pop()


def _debs(image: Image) -> list[Item]:
    locks = {}
    if image.debian:
        locks["debs"] = "debian.lock"
    if image.build and image.build.debian:
        locks["build/debs"] = "build-debian.lock"
    return [
        Item(folder, package.filename, package.sha256, package.size, package.urls)
        for folder, name in locks.items()
        for package in debian.read(image.folder / name)
    ]


def _sources(image: Image) -> list[Item]:
    local = indexes.configured().local
    return [
        Item("build", lock.file_name(source), source.sha256, None,
             (*map(str, local(lock.file_name(source))), source.url))
        for source in (image.build.sources if image.build else ())
    ]


def _wheels(image: Image, offline: bool, reporter: Reporter) -> list[Item]:
    """Return the wheels that the image's Python takes from the lock.

    Which of the accepted hashes that is needs the index once; the answer is kept
    beside the files, so that the next build can be offline.
    """
    known = _choice(image)
    if known is None:
        return []
    if os.path.lexists(known):
        try:
            return _read_choice(known, image)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            reporter.warn(f"{known} is damaged ({reason}); set aside as {set_aside(known).name}")
    if offline:
        raise BuildError(
            f"the wheels of {image.name} were never fetched here",
            hint=f"run `trimaran fetch {image.name}` once with a network",
        )
    items = _select(image, reporter)
    make_folder(known.parent, reporter)
    write_atomic(known, json.dumps([asdict(item) for item in items], indent=1) + "\n")
    return items


def chosen_wheels(image: Image) -> list[Item]:
    """Return the wheels that were chosen for `image` when it was fetched; none if never here."""
    known = _choice(image)
    try:
        return _read_choice(known, image) if known else []
    except (OSError, ValueError):
        return []


def _read_choice(known: Path, image: Image) -> list[Item]:
    """Return the wheels that the file names: one for each requirement, with a hash of the lock.

    Raises:
        OSError, ValueError: it cannot be read, or names something else.
    """
    items = _ITEMS.validate_json(known.read_bytes())
    for item, entry in zip(items, _wanted(image), strict=True):
        name, *_ = parse_wheel_filename(item.filename)
        named = item.folder == "wheels" and name == canonicalize_name(entry.name)
        if not named or item.sha256 not in entry.hashes:
            raise ValueError(f"{item.filename} is not what the lock has for {entry.name}")
    return items


def _wanted(image: Image) -> list[lock.Locked]:
    """Return the requirements that the image's Python takes from the lock."""
    if image.python is None:
        return []
    locked = lock.read(image.folder / "requirements.lock")
    return [entry for entry in locked if entry.applies_to(image.python.version)]


def _choice(image: Image) -> Path | None:
    """Return the file that says which wheels were chosen from the lock of `image`."""
    if image.python is None:
        return None
    text = (image.folder / "requirements.lock").read_text(encoding="utf-8")
    key = hashlib.sha256(f"{image.python.version}\n{text}".encode()).hexdigest()
    return paths.cache("wheelhouse", "resolved", f"{key[:16]}.json")


def _select(image: Image, reporter: Reporter) -> list[Item]:
    """Choose, for each locked requirement, the best wheel whose hash the lock has."""
    if image.python is None:
        return []
    sources = indexes.configured()
    tags = supported_tags(image.python.version)
    elsewhere = {
        wheel.sha256: indexes.File(lock.file_name(wheel), wheel.url, wheel.sha256, None)
        for wheel in image.python.elsewhere
    }
    def choose(entry: lock.Locked) -> Item:
        own = [file for hash_, file in elsewhere.items() if hash_ in entry.hashes]
        offered = own or sources.files(entry.name)
        return best(entry, offered, tags, sources)

    with ThreadPoolExecutor(PARALLEL) as pool:
        items = list(pool.map(choose, _wanted(image)))
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
    local = [str(path) for path in sources.local(same[0].filename)]
    urls = (*local, *dict.fromkeys(file.url for file in same))
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
    tags = list(cpython_tags(version, platforms=platforms))
    tags += [
        Tag(f"py{major}", "none", platform)
        for platform in (*platforms, "any")
        for major in (f"3{version[1]}", "3", *(f"3{m}" for m in range(version[1] - 1, -1, -1)))
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def _link(source: Path, place: Path) -> None:
    try:
        place.hardlink_to(source)
    except OSError:  # a file system without hard links
        shutil.copy(source, place)
