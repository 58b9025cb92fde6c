"""The wheelhouse: the locked files of an image, downloaded and verified, for an offline build.

The cache holds files by their SHA-256; images share them. `fetch` downloads missing files and
verifies all. `view` creates a folder with hard links to the files of one image, which a build
mounts at /mnt:

    wheels/*.whl  debs/*.deb  requirements.lock
    apps/*.whl  apps/requirements.lock    packages of this repository; wheels of an app image
    build/debs/*.deb  build/*             files for the first stage only
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from trimaran import locks, paths, process
from trimaran.errors import BuildError, Interrupted
from trimaran.files import check_space, link_or_copy
from trimaran.images import debian, definition, indexes, lock, wheels
from trimaran.images.definition import Image, package_folder
from trimaran.images.wheels import Item
from trimaran.net import download
from trimaran.reporting import Advance, Reporter, Silent

PARALLEL = 4
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
        python: fetch only the wheels, for this version of Python, as the host engine needs;
            None: all files, for the version of the image.

    Returns:
        The files, in the order of the locks.

    Raises:
        BuildError: A file cannot be downloaded, or its hash differs from that in the lock (the
            message has both).
    """
    items = wheels.locked(image, definition.interpreter(image, python), offline, reporter)
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
    """Return the SHA-256 of every file that the locks of `image` accept, for any Python."""
    file = definition.wheels_lock(image)
    return {hash_ for entry in (lock.read(file) if file else ()) for hash_ in entry.hashes} | {
        item.sha256 for item in (*_debs(image), *_sources(image))
    }


class _Quiet(Silent):
    """Reporter of a single download: it passes on warnings, and shows no bar of its own."""

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
        """Show nothing; raise Interrupted when the other downloads were stopped."""
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
    before = set(destination.glob("*.whl"))
    env = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    process.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(destination)],
        env=env, cwd=package_folder(package), check=BuildError,
    )
    made = set(destination.glob("*.whl")) - before
    if len(made) != 1:
        raise BuildError(f"building {package} gave {len(made)} wheels instead of one",
                         code="wheel-build-failed")
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
             (*local(lock.file_name(source)), source.url))
        for source in (image.build.sources if image.build else ())
    ]
