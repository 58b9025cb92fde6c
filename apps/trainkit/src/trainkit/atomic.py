"""Write files atomically: after a crash or a power cut, a file is complete or absent."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from trainkit.exits import ArgumentError

TEMPORARY = ".tmp"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces `path` when the `with` block ends without an error.

    The bytes reach the disk (fsync) before the rename, and an fsync of the folder makes the rename
    durable. On any error the temporary file is removed, and an existing file at `path` stays
    unchanged. If `path` is a link, the link is replaced, and its target stays unchanged.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    temporary.unlink(missing_ok=True)  # of a killed process, or a link that an attacker made
    try:
        with os.fdopen(open_own(temporary, os.O_WRONLY | os.O_EXCL), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def open_own(path: Path, flags: int) -> int:
    """Open the file `path`, or create it, without following a link; return its descriptor.

    Raises:
        OSError: `path` is a link (ELOOP), or cannot be opened.
    """
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def sync_folder(folder: Path) -> None:
    """Flush the entries of `folder` to the disk, so that renames in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: Any) -> None:
    """Write `document` as indented JSON to `path`, atomically."""
    with replacing(path) as file:
        file.write((json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def check_new(path: Path) -> None:
    """Raise ArgumentError if the output file `path` already exists or cannot be created.

    Raises:
        ArgumentError: `path` exists, or its folder is missing or not writable.
    """
    if path.exists():
        raise ArgumentError(
            f"{path} exists, and nothing is overwritten; choose another name", code="file-exists"
        )
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise ArgumentError if the folder of the output file `path` is missing or not writable.

    Raises:
        ArgumentError: the folder of `path` is missing or not writable.
    """
    if not path.parent.is_dir():
        raise ArgumentError(
            f"{path} cannot be written: {path.parent} is not a folder", code="file-unwritable"
        )
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(
            f"{path} cannot be written: {path.parent} is not writable", code="permission-denied"
        )
