"""A packed data set as one SquashFS image: one file for a parallel file system, bound by Apptainer.

The shards are not compressed once more: images are compressed already, and a reader maps
shards into memory.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shards.description import DATASET, Dataset
from trimaran import paths, process
from trimaran.data import dataset_json
from trimaran.errors import RunError, UsageError
from trimaran.files import SPARE_BYTES, check_space, follow_umask, sha256
from trimaran.reporting import Advance, Reporter

OPTIONS = (
    "-noI", "-noD", "-noF", "-noX",  # no compression of inodes, data, fragments, attributes
    "-no-fragments",  # else the ends of two files share a block, which both reads decode
    "-no-xattrs",
    "-all-root",  # not the numbers of who has made it
    "-mkfs-time", "0", "-all-time", "0",  # the same data, the same bytes
    "-noappend",
    "-no-progress",
)
_POLL_SECONDS = 0.5
_LINE = re.compile(r"^-\S+\s+\S+\s+(\d+)\s+\S+\s+\S+\s+squashfs-root/(.*)$")


@dataclass(frozen=True)
class Inside:
    """What an image holds: `sizes` in bytes by path; `sha256` is that of `dataset.json`."""

    dataset: Dataset
    sha256: str
    sizes: dict[str, int]


def make(folder: Path, image: Path, reporter: Reporter) -> None:
    """Write the packed data set in `folder` into the new file `image`.

    Raises:
        UsageError: `image` exists, or `folder` is no packed data set.
        RunError: a shard is missing, is a link or has a wrong size, or there is no space.
    """
    # mksquashfs stores a link as a link, and takes what begins with '-' for an option.
    folder, image = Path(os.path.realpath(folder)), image.absolute()
    dataset = dataset_json.read(folder)
    if image.exists():
        raise UsageError(f"{image} exists", hint="choose another file, or remove it")
    if not image.parent.is_dir():
        raise UsageError(f"{image}: there is no folder {image.parent}", hint="make it first")
    faults = dataset.missing_files(folder)
    if faults:
        raise RunError("\n".join(faults), hint=f"`trimaran data verify {folder}` tells more")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    check_space(image.parent, size + SPARE_BYTES, f"the image {image.name}", RunError)
    part = image.with_name(f".{image.name}.{os.getpid()}")
    try:
        with (
            reporter.bar(f"writing {image.name}", size, unit="B") as advance,
            _grows(part, advance),
        ):
            _write(folder, part, reporter)
        _check(part, image, folder, dataset)
        follow_umask(part)
        part.replace(image)
    finally:
        part.unlink(missing_ok=True)


def _write(folder: Path, part: Path, reporter: Reporter) -> None:
    # Two ways to set the time would be an error, and OPTIONS set it.
    env = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    output: list[str] = []
    status = process.stream(
        [_program("mksquashfs"), str(folder), str(part), *OPTIONS], None, reporter, env=env,
        on_line=output.append,
    )
    if status != 0:
        tail = "\n".join(output[-10:])
        raise RunError(f"mksquashfs failed with status {status}:\n{tail}")


def _check(part: Path, image: Path, folder: Path, dataset: Dataset) -> None:
    """Raise RunError unless `part`, made of `folder` to become `image`, holds all of `dataset`."""
    sizes = _sizes(part)
    faults = dataset.wrong_sizes(image, sizes)
    if DATASET not in sizes:
        faults.insert(0, f"{image / DATASET} is missing")
    if faults:
        raise RunError(
            "\n".join([f"the image of {folder} would lack something:", *faults]),
            hint=f"links are stored as links; `cp -rL {process.quoted(str(folder))} COPY` makes"
            " files of them, give that",
        )


def look_into(image: Path) -> Inside:
    """Return what the SquashFS image `image` holds.

    Raises:
        RunError: it is no SquashFS image, or cut off.
        UsageError: there is no packed data set in it.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name, "root")
        process.run(
            [_program("unsquashfs"), "-quiet", "-no-progress", "-dest", str(place),
             str(image.absolute()), DATASET],
            check=RunError,
        )
        described = place / DATASET
        if not described.is_file() or described.is_symlink():
            raise UsageError(f"{image} holds no packed data set (no {DATASET})")
        dataset, digest = dataset_json.read(place), sha256(described)
    return Inside(dataset, digest, _sizes(image))


def _sizes(image: Path) -> dict[str, int]:
    """Return the size of each file in `image`, by path; links are none."""
    listed = process.run(
        [_program("unsquashfs"), "-lln", str(image.absolute())], check=RunError
    ).stdout
    found = [match for line in listed.splitlines() if (match := _LINE.match(line))]
    return {match[2]: int(match[1]) for match in found}


@contextmanager
def _grows(file: Path, advance: Advance) -> Iterator[None]:
    """Tell `advance` how much of `file` another process has written."""
    ended = threading.Event()

    def watch() -> None:
        told = 0
        while not ended.wait(_POLL_SECONDS):
            size = file.stat().st_size if file.exists() else 0
            advance(size - told)
            told = size

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _program(name: str) -> str:
    """Return the path of a program of squashfs-tools: from PATH, else what came with Apptainer."""
    own = paths.cache("apptainer", "current", "usr", "bin", name)
    found = shutil.which(name) or (str(own) if own.is_file() else None)
    if found is None:
        raise UsageError(f"{name} is not installed", hint="it is in the package squashfs-tools")
    return found
