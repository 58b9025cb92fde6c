"""Files that are there completely or not at all, also after a crash or a power cut."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".tmp"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that becomes `path` when the block ends without an error.

    The bytes reach the disk (fsync) before the rename, and the rename itself is
    made durable by an fsync of the folder. On any error the temporary file is
    removed and a previous `path` stays as it was.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, document: Any) -> None:
    """Write `document` as indented JSON to `path`, atomically."""
    with replacing(path) as file:
        file.write((json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
