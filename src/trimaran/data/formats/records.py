"""What goes into a shard and what is read back: the interface that every format has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trimaran.data.kinds import Kind


@dataclass(frozen=True)
class Record:
    """One sample.

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


class Format(Protocol):
    """A module with the writer and the reader of one format.

    `READS_DAMAGED` is False where a library trusts what it reads, so that a file
    with a wrong hash is better not given to it. `INDEXED` is True where a shard needs an index.
    `PLAIN_ONLY` is True where its published layout holds one image of one class and no more.
    """

    Writer: type[Writer]
    READS_DAMAGED: bool
    INDEXED: bool
    PLAIN_ONLY: bool

    @staticmethod
    def read(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
        """Yield every record of a shard in order, and as text the faults of shard and index."""


def synced(path: Path) -> None:
    """Flush the file at `path` to disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
