"""Functions shared by the readers: map a shard into memory, and read an index of numbers."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shards.description import Shard
from shards.errors import ShardError
from shards.formats.records import Bytes


def check_size(folder: Path, entry: Shard, ends: NDArray[np.int64] | None = None) -> Path:
    """Check the size of a shard, and return its path.

    Args:
        folder: folder of the data set.
        entry: entry of the shard in `dataset.json`.
        ends: end position of each record in bytes, increasing; used to name the first truncated
            record.

    Raises:
        ShardError: the shard is missing, unreadable, or has another size than `entry`.
    """
    path = folder / entry.file
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise ShardError(f"shard {path} does not exist, dataset.json lists it") from error
    except OSError as error:
        raise ShardError(f"shard {path} cannot be read: {error}") from error
    if size != entry.bytes:
        cut = ""
        if ends is not None and (whole := int(np.searchsorted(ends, size, "right"))) < len(ends):
            cut = f" from record {whole} on"
        raise ShardError(
            f"shard {path} has {size} bytes, but dataset.json lists {entry.bytes}: it is "
            f"truncated{cut} or of another version; check all shards with `trimaran data verify`"
        )
    return path


def map_shard(
    folder: Path, entry: Shard, ends: NDArray[np.int64] | None = None
) -> tuple[Path, Bytes]:
    """Check the size of a shard, and return its path and its memory-mapped bytes, (size,).

    The arguments and errors are the same as in `check_size`.
    """
    path = check_size(folder, entry, ends)
    try:
        return path, np.asarray(np.memmap(path, np.uint8, mode="r"))
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise ShardError(f"shard {path} cannot be read: {error}") from error


def read_index(folder: Path, entry: Shard) -> tuple[Path, str]:
    """Return the path and text of a shard's index; verify its checksum if `entry` has one."""
    if entry.index is None:
        raise ShardError(f"shard {folder / entry.file} is listed in dataset.json without its index")
    path = folder / entry.index
    try:
        content = path.read_bytes()
        if entry.index_sha256 not in (None, hashlib.sha256(content).hexdigest()):
            raise ShardError(
                f"index {path} does not have the checksum in dataset.json: it is damaged or of "
                "another version; check all shards with `trimaran data verify`"
            )
        return path, content.decode("ascii")
    except FileNotFoundError as error:
        raise ShardError(f"index {path} does not exist, dataset.json lists it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ShardError(f"index {path} cannot be read: {error}") from error


def number_table(folder: Path, entry: Shard) -> tuple[Path, NDArray[np.int64]]:
    """Return the path of a shard's index, and the index as an array of integers, (samples, 2).

    Each row has the two numbers of a line: position and size of a record in TFRecord shards, sample
    number and position in RecordIO shards.
    """
    path, text = read_index(folder, entry)
    try:
        with warnings.catch_warnings():  # NumPy warns at text that is not a number
            warnings.simplefilter("error", DeprecationWarning)
            table = np.fromstring(text, np.int64, sep=" ").reshape(-1, 2)
    except (ValueError, DeprecationWarning) as error:
        raise ShardError(f"index {path} is malformed: needs two whole numbers a line") from error
    if len(table) != entry.samples:
        raise ShardError(
            f"index {path}: {len(table)} samples are listed, but dataset.json has {entry.samples}"
        )
    return path, table
