"""`--stage DIR`: copy the shards to a local disk of the node before the training.

Parallel file systems are slow at reads of single images in random order, and fast at copies of
whole shards. A copy gets its final name only when it is complete and verified. A restarted job, or
a second job on the node, therefore reuses each file that exists. `dataset.json` is copied last.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shards.description import DATASET, Shard, TextFacts
from trainkit.data.dataset import evaluation_split, fingerprint, read_description
from trainkit.exits import ArgumentError, DataError

CHUNK = 1 << 24
PATIENCE = 600.0  # seconds without a new byte until a waiting rank gives up
POLL = 0.5  # seconds between two checks
PART = ".part"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
"""Errors of `flock` on a file system without locks."""


@dataclass(frozen=True)
class File:
    """One file to copy.

    Attributes:
        source: path to copy from.
        target: path to copy to.
        size: size in bytes.
        sha256: SHA-256 in hexadecimal; None for `dataset.json`, and for an index whose checksum
            `dataset.json` does not list.
        content: bytes of `dataset.json` for a comparison, because an edit may leave its size
            unchanged; None for other files.
    """

    source: Path
    target: Path
    size: int
    sha256: str | None
    content: bytes | None = None

    @property
    def is_there(self) -> bool:
        """Whether the complete target exists: a copy gets this name only after verification."""
        try:
            if self.target.stat().st_size != self.size:
                return False
            return self.content is None or self.target.read_bytes() == self.content
        except OSError:
            return False

    def part(self, own: str) -> Path:
        """Return the path of the unfinished copy of this file.

        `own` is the end of the name. It is empty, or differs between processes that copy the same
        file at the same time (see `_alone`).
        """
        return self.target.with_name(self.target.name + PART + own)

    @property
    def arrived(self) -> int:
        """The number of bytes copied so far: the sizes of the target and of unfinished copies."""
        name = glob.escape(self.target.name)
        return _size(self.target) + sum(map(_size, self.target.parent.glob(f"{name}{PART}*")))


def stage(folder: Path, directory: Path, *, local_rank: int, patience: float = PATIENCE) -> Path:
    """Copy the training and evaluation shards of `folder` into `directory`; return their folder.

    The process with `local_rank` 0 copies; the other processes of the node wait for it.

    Args:
        folder: a packed data set.
        directory: folder on a disk of the node; created if it does not exist.
        local_rank: number of this process on its node.
        patience: seconds without progress after which a waiting process gives up.

    Raises:
        ArgumentError: `directory` cannot be written to or is too small, or `folder` is a folder of
            images.
        DataError: a shard is missing, or its copy has another size or checksum.
    """
    if not (folder / DATASET).exists() and (folder / "train").is_dir():
        raise ArgumentError(
            f"--stage copies shards, and {folder} is not packed: see `trimaran data`",
            code="data-unsuitable",
        )
    dataset = read_description(folder / DATASET)
    name = fingerprint(dataset.name, [shard.sha256 for shard in dataset.shards])
    place = directory / name.replace(" ", "-")
    splits = [dataset.splits.get(name) for name in ("train", evaluation_split(dataset.splits))]
    listed = [shard for split in splits if split for shard in split.shards]
    files = _files(folder, place, listed, dataset.text)
    if local_rank != 0:
        _wait(files, place, patience)
        return place
    try:
        with _alone(place) as own:
            _copy([file for file in files if not file.is_there], place, own)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ArgumentError(
            f"--stage {directory}: {error.strerror}{where}", code="file-unwritable"
        ) from error
    return place


def _files(
    folder: Path, place: Path, shards: list[Shard], text: TextFacts | None
) -> list[File]:
    """Return the files to copy from `folder` to `place`, `dataset.json` at the end.

    The other files are `shards`, their indices and, for a data set of text, the tokenizer.
    """
    wanted: list[tuple[str, int | None, str | None]] = []
    if text is not None:
        wanted.append((text.tokenizer.file, None, text.tokenizer.sha256))
    for shard in shards:
        wanted.append((shard.file, shard.bytes, shard.sha256))
        if shard.index:
            wanted.append((shard.index, None, shard.index_sha256))
    try:
        files = [
            File(
                folder / name,
                place / name,
                (folder / name).stat().st_size if size is None else size,
                checksum,
            )
            for name, size, checksum in wanted
        ]
        path = folder / DATASET
        content = path.read_bytes()
        return [*files, File(path, place / path.name, len(content), None, content)]
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be staged: {error.strerror}", code="file-unwritable"
        ) from error


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[str]:
    """Lock `place`, so that a second job on the node does not copy the same files.

    Yields the suffix of unfinished files, which is empty if this process holds the lock. On a file
    system without locks, the suffix contains the host name and the process ID, and several jobs
    copy independently.
    """
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w", encoding="ascii") as lock:
        own = ""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            own = f".{socket.gethostname()}.{os.getpid()}"
        yield own


def _copy(files: list[File], place: Path, own: str) -> None:
    files = [file for file in files if not file.is_there]  # skip copies of an earlier job
    needed, free = sum(file.size for file in files), shutil.disk_usage(place).free
    if needed > free:
        raise ArgumentError(
            f"--stage {place.parent}: {needed / 1e9:.2f} GB are to be copied, "
            f"{free / 1e9:.2f} GB are free",
            code="disk-full",
        )
    with _progress(needed) as advance:
        for file in files:
            file.target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _copy_file(file, own, advance)
            finally:
                file.part(own).unlink(missing_ok=True)


def _copy_file(file: File, own: str, advance: Any) -> None:
    """Copy one file, verify its size and checksum, and then give the copy its final name.

    The name of the unfinished copy ends with `own`, which differs between jobs that copy at the
    same time. `advance` is called with the size of each chunk in bytes.
    """
    digest, size = hashlib.sha256(), 0
    try:
        source = file.source.open("rb")
    except OSError as error:
        raise DataError(
            f"{file.source} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    with source, file.part(own).open("wb") as target:
        while chunk := source.read(CHUNK):
            target.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    if size != file.size:
        raise DataError(
            f"shard {file.source} has {size} bytes, but dataset.json lists {file.size}: it "
            "is truncated or of another version; check all shards with `trimaran data verify`",
            code="data-damaged",
        )
    if file.sha256 not in (None, digest.hexdigest()):
        raise DataError(
            f"shard {file.source} does not have the checksum in dataset.json", code="data-damaged"
        )
    file.part(own).replace(file.target)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Yield a function that counts copied bytes; show a bar on a terminal, else print one line."""
    if not total or not sys.stderr.isatty():
        if total:
            print(f"staging {total / 1e9:.2f} GB", file=sys.stderr, flush=True)
        yield lambda size: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="B", unit_scale=True, desc="staging", file=sys.stderr) as bar:
        yield bar.update


def _wait(files: list[File], place: Path, patience: float) -> None:
    """Wait for the copies of `files`; raise DataError after `patience` seconds without progress."""
    last, since = -1, time.monotonic()
    while not all(file.is_there for file in files):
        size = sum(file.arrived for file in files)
        if size != last:
            last, since = size, time.monotonic()
        elif time.monotonic() - since > patience:
            raise DataError(
                f"{place}: nothing was copied for {patience:g} s; "
                "the first process of this node, which copies, may have ended",
                code="staging-stalled",
            )
        time.sleep(POLL)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
