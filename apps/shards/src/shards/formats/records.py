"""What goes into a shard and what is read back: the interface that every format has."""

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
    """One sample to be written.

    Attributes:
        key: its place in the source, which no other sample of its split has.
        name: its path in the source.
        labels: its classes, from 0, increasing: exactly one, any number, or none (`Kind`).
        frames: image files, whole: one, or those of a sequence in order.
        encoding: what they are, `jpg` or `png`.
    """

    key: int
    name: str
    labels: tuple[int, ...]
    frames: tuple[bytes, ...]
    encoding: str


@dataclass(frozen=True)
class Read:
    """A record as it was found in a shard, or what is wrong with it.

    Attributes:
        name: what the shard calls it; "" where it has no names or they are damaged.
        fault: what is wrong; then there may be no labels and no frames.
    """

    name: str
    labels: tuple[int, ...] = ()
    frames: tuple[bytes, ...] = ()
    fault: str | None = None


class Writer(Protocol):
    """A shard being written into an empty folder; `file` and `index` are names below it."""

    file: str
    index: str | None

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None: ...

    def add(self, record: Record) -> None:
        """Append one sample."""

    def finish(self) -> None:
        """Complete the shard and its index, and flush both to disk."""

    def close(self) -> None:
        """Let go of what is open; without `finish`, no shard is there."""


class Reader(Protocol):
    """The samples of one shard, numbered from 0, in any order and without their checksums.

    A shard is mapped into memory and a record is a view of its bytes; the positions are found once
    when it is opened, from an index or a table, never by reading the shard. Opening one with
    (folder, its entry of `dataset.json`, what its samples are, ending of the image files) raises
    ShardError where the shard, its index or its table is missing or wrong.
    """

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None: ...

    def __len__(self) -> int: ...

    def frames(self, number: int) -> list[Bytes]:
        """Return the bytes of the image files of a sample; ShardError if it is malformed."""
        ...

    def labels(self, number: int) -> list[int]:
        """Return the classes of a sample as stored; ShardError if they are no numbers."""
        ...

    def describe(self, number: int) -> str:
        """Return the shard and the record, for an error message; never raises."""
        ...


class Format(Protocol):
    """A module of one format."""

    Writer: type[Writer]
    Reader: type[Reader]

    @staticmethod
    def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
        """Yield every record of a shard in order, and as text the faults of shard and index."""
