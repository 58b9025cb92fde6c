"""Write and read a packed data set as one SquashFS image, which Apptainer can bind-mount.

One large file is faster on a parallel file system than many files. The image is not compressed,
because pictures are compressed already and a reader maps the shards into memory.
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
    "-no-fragments",  # otherwise the ends of two files share one block
    "-no-xattrs",
    "-all-root",  # do not store the user and group IDs of the author
    "-mkfs-time", "0", "-all-time", "0",  # the same data give the same bytes
    "-noappend",
    "-no-progress",
)
_POLL_SECONDS = 0.5
_LINE = re.compile(r"^-\S+\s+\S+\s+(\d+)\s+\S+\s+\S+\s+squashfs-root/(.*)$")


@dataclass(frozen=True)
class Inside:
    """The content of a SquashFS image that contains a packed data set.

    Attributes:
        dataset: the parsed `dataset.json`.
        sha256: SHA-256 of `dataset.json`.
        sizes: path of each file in the image -> size in bytes.
    """

    dataset: Dataset
    sha256: str
    sizes: dict[str, int]


def make(folder: Path, image: Path, reporter: Reporter) -> None:
    """Write the packed data set in `folder` into the new file `image`.

    Raises:
        UsageError: `image` exists, or `folder` contains no packed data set.
        RunError: a shard is missing, is a link or has a wrong size, or the disk has too little
            free space.
    """
    # mksquashfs stores a link as a link, and reads an argument that begins with '-' as an option.
    folder, image = Path(os.path.realpath(folder)), image.absolute()
    dataset = dataset_json.read(folder)
    if image.exists():
        raise UsageError(f"{image} exists already", code="file-exists",
                         hint="choose another file, or remove it")
    if not image.parent.is_dir():
        raise UsageError(f"{image}: the folder {image.parent} does not exist",
                         code="file-missing", hint="create it first")
    faults = dataset.missing_files(folder)
    if faults:
        raise RunError("\n".join(faults), code="data-damaged",
                       hint=f"`trimaran data verify {folder}` lists all faults")
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
    # mksquashfs refuses this variable together with the time options in OPTIONS.
    env = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    output: list[str] = []
    status = process.stream(
        [_program("mksquashfs"), str(folder), str(part), *OPTIONS], None, reporter, env=env,
        on_line=output.append,
    )
    if status != 0:
        tail = "\n".join(output[-10:])
        raise RunError(f"mksquashfs failed with status {status}:\n{tail}", code="program-failed")


def _check(part: Path, image: Path, folder: Path, dataset: Dataset) -> None:
    """Raise RunError if a file of `dataset` is missing in the new image, or has a wrong size.

    `part` is the unfinished image, which will be renamed to `image`.
    """
    sizes = _sizes(part)
    faults = dataset.wrong_sizes(image, sizes)
    if DATASET not in sizes:
        faults.insert(0, f"{image / DATASET} is missing")
    if faults:
        raise RunError(
            "\n".join([f"the image of {folder} would be incomplete:", *faults]),
            code="data-damaged",
            hint="links in the folder stay links in the image: replace them by files with"
            f" `cp -rL {process.quoted(str(folder))} COPY`, and use COPY",
        )


def look_into(image: Path) -> Inside:
    """Return the content of the SquashFS image `image`.

    Raises:
        RunError: the file is not a SquashFS image, or is truncated.
        UsageError: the image contains no packed data set.
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
            raise UsageError(f"{image} contains no packed data set (no {DATASET})",
                             code="data-missing",
                             hint="make the image with `trimaran data squashfs`")
        dataset, digest = dataset_json.read(place), sha256(described)
    return Inside(dataset, digest, _sizes(image))


def _sizes(image: Path) -> dict[str, int]:
    """Return a dictionary that maps the path of each file in `image` to its size in bytes.

    Links are left out.
    """
    listed = process.run(
        [_program("unsquashfs"), "-lln", str(image.absolute())], check=RunError
    ).stdout
    found = [match for line in listed.splitlines() if (match := _LINE.match(line))]
    return {match[2]: int(match[1]) for match in found}


@contextmanager
def _grows(file: Path, advance: Advance) -> Iterator[None]:
    """Report to `advance` how many bytes of `file` are written during the `with` block."""
    ended = threading.Event()

    def watch() -> None:
        reported = 0
        while not ended.wait(_POLL_SECONDS):
            size = file.stat().st_size if file.exists() else 0
            advance(size - reported)
            reported = size

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _program(name: str) -> str:
    """Return the path of a program of squashfs-tools, from PATH or from Trimaran's Apptainer."""
    own = paths.cache("apptainer", "current", "usr", "bin", name)
    found = shutil.which(name) or (str(own) if own.is_file() else None)
    if found is None:
        raise UsageError(f"{name} is not installed", code="program-missing",
                         hint="install the package squashfs-tools")
    return found
