"""Compute checksums of files, and flush files to disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def synced(path: Path) -> None:
    """Flush the file at `path` to disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
