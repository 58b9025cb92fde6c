"""The wheelhouse: the locked files of an image, downloaded and verified, for an offline build.

The cache stores each file under its SHA-256, so that images share equal files. For each locked
requirement, the most specific usable wheel is chosen. `fetch` downloads missing files and verifies
all files. `view` creates a folder with hard links to the files of one image. A build mounts this
folder at /mnt:

    wheels/*.whl  debs/*.deb  requirements.lock
    apps/*.whl  apps/requirements.lock    packages of this repository; wheels of an app image
    build/debs/*.deb  build/*             files for the first stage only
    compiled/                             mount point of what that stage compiled (see `compiled`)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import ConfigDict, TypeAdapter, with_config

from trimaran import architectures, locks, paths, process
from trimaran.architectures import Architecture
from trimaran.errors import BuildError, Interrupted
from trimaran.files import check_space, link_or_copy, make_folder, set_aside, write_atomic
from trimaran.images import definition, indexes, lock, wheel_choice
from trimaran.images.definition import Image, package_folder
from trimaran.images.parts import Python
from trimaran.images.wheel_choice import PARALLEL
from trimaran.net import download
from trimaran.reporting import Advance, Reporter, Silent

EPOCH = "1577836800"
"""Time stamp in the wheels of this repository (2020-01-01), so that equal sources give equal
files; SOURCE_DATE_EPOCH in the environment replaces it."""


def fetch(
    image: Image, *, offline: bool, reporter: Reporter, python: str | None = None
) -> list[Item]:
    """Download the missing locked files of `image` into the cache, and verify all of them.

    Args:
        image: the image; files of its framework image are not included.
        offline: use no network.
        reporter: shows the progress, and sources that do not answer.
        python: version of Python on the host, for the host engine, which needs only wheels. If it
            is None, all files are fetched, for the version of Python in the image.

    Returns:
        The files, in the order of the locks.

    Raises:
        BuildError: A file cannot be downloaded, or its hash differs from the hash in the lock (the
            message has both hashes).
    """
    items = locked(image, definition.interpreter(image, python), offline, reporter)
    if python is None:
        items = [*_debs(image), *items, *_sources(image)]
    if not items:
        return []
    missing = [item for item in items if not item.kept.is_file()]
    root = paths.cache("wheelhouse")
    root.mkdir(parents=True, exist_ok=True)
    check_space(root, sum(item.size or 0 for item in missing), "the wheelhouse", BuildError)
    if missing:
        reporter.note(f"  fetching {len(missing)} of {len(items)} files of {image.name}")
    _get_all(items, f"wheelhouse of {image.name}", offline, reporter)
    return items


def _get_all(items: list[Item], title: str, offline: bool, reporter: Reporter) -> None:
    with (
        reporter.bar(title, len(items), unit="files") as advance,
        ThreadPoolExecutor(PARALLEL) as pool,
    ):
        quiet = _Quiet(reporter)
        tasks = [
            pool.submit(download.fetch, item.urls, item.kept, sha256=item.sha256, size=item.size,
                        offline=offline, reporter=quiet, error=BuildError)
            for item in items
        ]
        try:
            for task in tasks:
                task.result()
                advance(1)
        except BaseException:
            quiet.stopped = True  # ends the running downloads; each can be resumed
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def locked_hashes(image: Image) -> set[str]:
    """Return the SHA-256 of every file that the locks of `image` accept.

    The files are for any supported Python and for any architecture of the image.
    """
    file = definition.wheels_lock(image)
    found = {hash_ for entry in (lock.read(file) if file else ()) for hash_ in entry.hashes}
    for architecture in definition.chain(image)[0].architectures:
        other = definition.on(image, architecture)
        found |= {item.sha256 for item in (*_debs(other), *_sources(other))}
    return found


class _Quiet(Silent):
    """A reporter of a single download, which passes on warnings and shows no bar of its own."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.stopped = False
        self._reporter = reporter

    def warn(self, text: str) -> None:
        """Pass the warning `text` to the reporter of all downloads."""
        self._reporter.warn(text)

    @contextmanager
    def bar(self, *words: object, **more: object) -> Iterator[Advance]:
        """Yield a function to call in place of the `advance` of a progress bar; no bar is shown.

        The function raises Interrupted if `stopped` is set, so that this download ends with the
        others.
        """
        def advance(amount: float) -> None:
            if self.stopped:
                raise Interrupted("stopped with the other downloads")

        yield advance


@contextmanager
def view(image: Image, items: Iterable[Item]) -> Iterator[Path]:
    """Create a temporary folder with the files of one image for a build, and return its path.

    `fetch` must have verified the files; pip verifies the wheels again during the build.
    """
    with locks.scratch(paths.cache("wheelhouse"), "view-") as folder:
        folder.chmod(0o755)  # a build with mapped user ids reads it
        lay_out(image, items, folder)
        yield folder


def lay_out(image: Image, items: Iterable[Item], folder: Path) -> None:
    """Link or copy the files of one image into `folder`, as the module's docstring shows."""
    for item in items:
        place = folder / item.folder / item.filename
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        link_or_copy(item.kept, place)
    if file := definition.wheels_lock(image):
        place = folder / "apps" if image.kind == "app" else folder
        place.mkdir(exist_ok=True)
        shutil.copy(file, place)
    if image.build is not None:
        (folder / "compiled").mkdir(exist_ok=True)  # mount point of `compiled`
    for path in definition.build_files(image):
        (folder / "build").mkdir(exist_ok=True)
        shutil.copy(path, folder / "build")
    for package in image.app.packages if image.app else ():
        build_wheel(package, folder / "apps")


def build_wheel(package: str, destination: Path) -> Path:
    """Build the wheel of `apps/<package>` in `destination`; equal sources give equal bytes.

    Raises:
        BuildError: The build failed, or did not give exactly one wheel.
    """
    destination.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    # A separate folder: `destination` may already contain the wheel, built for another image.
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=destination) as folder:
        process.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            env=env, cwd=package_folder(package), check=BuildError,
        )
        made = list(Path(folder).glob("*.whl"))
        if len(made) != 1:
            raise BuildError(f"building {package} gave {len(made)} wheels instead of one",
                             code="wheel-build-failed")
        return made[0].replace(destination / made[0].name)


def _debs(image: Image) -> list[Item]:
    final, building = (definition.lock_name(image, name) for name in definition.DEBIAN_LOCKS)
    locks = {}
    if image.debian:
        locks["debs"] = final
    if image.build and image.build.debian:
        locks["build/debs"] = building
    return [
        Item(folder, package.filename, package.sha256, package.size, package.urls)
        for folder, name in locks.items()
        for package in lock.read_debian(image.folder / name)
    ]


def _sources(image: Image) -> list[Item]:
    return [
        Item("build", lock.file_name(source), source.sha256, None,
             (*indexes.configured().local(lock.file_name(source)), source.url))
        for source in definition.build_sources(image)
    ]


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True)
class Item:
    """One locked file: its folder in a wheelhouse, name, SHA-256, size in bytes and addresses."""

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
    """Return the wheels of the lock of `image` for `python`, or [] if the image has no lock.

    A lock accepts several wheels for a requirement, and the package index is needed to choose
    one wheel. The choice is stored in the cache, so that later builds need no network.

    Raises:
        BuildError: An index offers no usable wheel, or `offline` is set and no choice is stored.
    """
    file = definition.wheels_lock(image)
    if file is None:
        return []
    wanted = _wanted(file, python, image.architecture)
    known = _choice(file, python, image.architecture)
    if os.path.lexists(known):
        try:
            return _read_choice(known, wanted)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            reporter.warn(f"{known} is damaged ({reason}); renamed to {set_aside(known).name}")
    if offline:
        raise BuildError(
            f"the cache has no wheels of {image.name}, and --offline was given",
            code="download-offline",
            hint=f"run `trimaran fetch {image.name}"
            f"{architectures.option(image.architecture)}` with a network",
        )
    items = _select(image, wanted, python, reporter)
    make_folder(known.parent, reporter)
    write_atomic(known, json.dumps([asdict(item) for item in items], indent=1) + "\n")
    return items


def chosen(image: Image) -> list[Item]:
    """Return the wheels that `locked` chose for `image` earlier, or [] if no choice is stored."""
    file, python = definition.wheels_lock(image), definition.interpreter(image)
    if file is None:
        return []
    try:
        wanted = _wanted(file, python, image.architecture)
        return _read_choice(_choice(file, python, image.architecture), wanted)
    except (OSError, ValueError):
        return []


def _read_choice(known: Path, wanted: list[lock.Locked]) -> list[Item]:
    """Return the wheels that were chosen earlier and stored in the file `known`.

    Raises:
        ValueError: The file is damaged, or a wheel does not match its locked package in `wanted`.
    """
    items = _ITEMS.validate_json(known.read_bytes())
    for item, entry in zip(items, wanted, strict=True):
        name, *_ = parse_wheel_filename(item.filename)
        named = item.folder == "wheels" and name == canonicalize_name(entry.name)
        if not named or item.sha256 not in entry.hashes:
            raise ValueError(f"{item.filename} does not fit the locked {entry.name}")
    return items


def _wanted(file: Path, python: Python, architecture: Architecture) -> list[lock.Locked]:
    """Return the requirements of a lock that apply to `python` on this architecture."""
    return [entry for entry in lock.read(file) if entry.applies_to(python.version, architecture)]


def _choice(file: Path, python: Python, architecture: Architecture) -> Path:
    """Return the path of the file that records which wheels were selected for a lock."""
    text = file.read_text(encoding="utf-8")
    key = hashlib.sha256(f"{python.version} {architecture}\n{text}".encode()).hexdigest()
    return paths.cache("wheelhouse", "resolved", f"{key[:16]}.json")


def _select(
    image: Image, wanted: list[lock.Locked], python: Python, reporter: Reporter
) -> list[Item]:
    """Return for each requirement the best wheel with a locked hash, in the order of `wanted`."""
    sources = indexes.configured()
    tags = wheel_choice.supported_tags(python.version, image.architecture)

    def choose(entry: lock.Locked) -> Item:
        same = wheel_choice.best(entry, wheel_choice.offered(entry, python, sources), tags)
        if not same:
            raise _missing(image, entry, python, sources)
        first = same[0]
        urls = (*sources.local(first.filename), *dict.fromkeys(file.url for file in same))
        return Item("wheels", first.filename, first.sha256, first.size, urls)

    with ThreadPoolExecutor(PARALLEL) as pool:
        items = list(pool.map(choose, wanted))
    for index, reason in sources.silent.items():
        reporter.warn(f"{index} did not answer ({reason}) and was skipped")
    return items


def _missing(
    image: Image, entry: lock.Locked, python: Python, sources: indexes.Sources
) -> BuildError:
    """Return the error for a requirement of which no index offers a usable wheel."""
    return BuildError(
        f"{definition.wheels_lock(image)}: {entry.name}=={entry.version}: no package index offers a"
        f" wheel for {image.architecture} and Python {python.version} whose hash is in the"
        f" lock{wheel_choice.silent(sources)}",
        code="wheel-missing",
        hint=f"pip's configuration names the indexes: {', '.join(sources.indexes)}; if the package"
        f" has no such wheel, {wheel_choice.REMEDY}, then run `trimaran lock {image.name}`",
    )
