"""The interface of every format: records to write, records read back, writers and readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shards.description import Shard
from shards.kinds import Kind

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Record:
    """A sample to write.

    Attributes:
        key: number of the sample in the source, unique in its split.
        name: path of the sample in the source.
        labels: class numbers from 0, increasing; their count depends on `Kind.labels`.
        frames: encoded image files: one image, or the frames of a sequence in order.
        encoding: file name extension of the frames, `jpg` or `png`.
    """

    key: int
    name: str
    labels: tuple[int, ...]
    frames: tuple[bytes, ...]
    encoding: str


@dataclass(frozen=True)
class Read:
    """A record that was read from a shard, or its fault.

    Attributes:
        name: name of the record in the shard; "" if the format has no names or the name is damaged.
        labels: class numbers.
        frames: encoded image files.
        fault: description of the damage, or None for a valid record. Labels and frames of a damaged
            record may be missing.
    """

    name: str
    labels: tuple[int, ...] = ()
    frames: tuple[bytes, ...] = ()
    fault: str | None = None


class Writer(Protocol):
    """A writer of a shard into an empty folder.

    Attributes:
        file: path of the shard, relative to the folder.
        index: path of the index, relative to the folder; None without an index.
    """

    file: str
    index: str | None

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None: ...

    def add(self, record: Record) -> None:
        """Append one sample."""

    def finish(self) -> None:
        """Complete the shard and its index, and flush both to disk."""

    def close(self) -> None:
        """Close open files; a shard closed without `finish` is incomplete."""


class Reader(Protocol):
    """A reader of the samples of one shard, in any order; samples have numbers from 0.

    The shard is mapped into memory, and a record is a view of its bytes. Opening a shard reads only
    the positions of the records, from the index or from a table in the shard. Checksums are not
    verified.

    Args:
        folder: folder of the data set.
        entry: entry of the shard in `dataset.json`.
        kind: kind of the samples.
        encoding: file name extension of the image files.

    Raises:
        ShardError: the shard, its index or its table is missing or wrong.
    """

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None: ...

    def __len__(self) -> int: ...

    def frames(self, number: int) -> list[Bytes]:
        """Return the encoded image files of a sample; raise ShardError if it is malformed."""
        ...

    def labels(self, number: int) -> list[int]:
        """Return the stored classes of a sample; raise ShardError if they are not numbers."""
        ...

    def describe(self, number: int) -> str:
        """Return the shard and record of a sample as a text for an error message; never raise."""
        ...


class Format(Protocol):
    """The interface of a module that writes and reads a format, such as `tfrecord`."""

    Writer: type[Writer]
    Reader: type[Reader]

    @staticmethod
    def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
        """Yield every record of a shard in order, and faults of shard and index as text."""
