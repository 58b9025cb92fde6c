"""MXNet RecordIO shards: a header with the label and an image file per sample, and MXNet's index.

A record (dmlc-core, include/dmlc/recordio.h) has the magic number, a word with a flag (3 bits) and
the length (29 bits), the content, and zeros up to a multiple of four bytes. If the content contains
the magic number at a multiple of four, the record is split there into parts, and the magic number
is left out of the parts: flag 1 marks the first part, 2 a middle part, 3 the last part, and 0 an
unsplit record. A few files of ImageNet are split; `Reader` copies only these. The content
(mxnet/src/io/image_recordio.h) begins with a zero (32 bits), the label as a float, the sample
number and another zero (64 bits each). The index has the number and position of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shards.description import Shard
from shards.errors import ShardError
from shards.formats import indexed
from shards.formats.indexed import IndexedWriter
from shards.formats.mapped import map_shard, number_table
from shards.formats.records import Bytes, Read, Record
from shards.kinds import Kind

MAGIC = 0xCED7230A
_MAGIC = struct.pack("<I", MAGIC)
_LENGTH_BITS = 29
_LENGTH = (1 << _LENGTH_BITS) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_WORDS = struct.Struct("<II")
_HEADER = struct.Struct("<IfQQ")


class Writer(IndexedWriter):
    """A writer of the shard `STEM.rec` and of its index `STEM.idx`."""

    suffix = ".rec"

    def add(self, record: Record) -> None:
        """Append one record and its index line.

        Raises:
            ValueError: the image has 512 MiB or more.
        """
        content = _HEADER.pack(0, record.labels[0], record.key, 0) + record.frames[0]
        if len(content) >> _LENGTH_BITS:
            raise ValueError(f"{record.name} is too large for RecordIO")
        parts, framed = split(content), []
        for number, part in enumerate(parts):
            flag = _WHOLE if len(parts) == 1 else _FIRST if number == 0 else _MIDDLE
            flag = _LAST if 0 < number == len(parts) - 1 else flag
            framed += [_WORDS.pack(MAGIC, flag << _LENGTH_BITS | len(part)), part,
                       bytes(-len(part) % 4)]
        self.append(b"".join(framed), lambda start: f"{record.key}\t{start}")


def split(content: bytes) -> list[bytes]:
    """Return `content` split at the magic numbers whose position is a multiple of four."""
    parts, start, at = [], 0, content.find(_MAGIC)
    while at >= 0:
        if at % 4 == 0:
            parts.append(content[start:at])
            start = at + 4
        at = content.find(_MAGIC, at + 1 if at % 4 else at + 4)
    return [*parts, content[start:]]


class Reader:
    """A reader of the samples of one RecordIO file by its index."""

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None:
        self.path, self._bytes = map_shard(folder, entry)
        index, table = number_table(folder, entry)
        self._keys, self._starts = table[:, 0], table[:, 1]
        if not len(table):
            return
        if self._starts.min() < 0 or self._starts.max() + _WORDS.size > len(self._bytes):
            raise ShardError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):
            if _WORDS.unpack_from(self._bytes.data, int(self._starts[number]))[0] != MAGIC:
                raise ShardError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._starts)

    def frames(self, number: int) -> list[Bytes]:
        """Return a list with one element, the image file of a sample.

        It is a view of the shard, or a copy if the record is stored in several parts.
        """
        return [self._payload(number)[_HEADER.size :]]

    def labels(self, number: int) -> list[int]:
        """Return a list with the class in the header of a record."""
        payload = self._payload(number)
        flag, label, _, _ = _HEADER.unpack_from(payload.data)
        if flag or label != int(label):
            what = f"{flag} labels" if flag else f"the label {label}"
            raise ShardError(f"{self.describe(number)} has {what}, not one whole number")
        return [int(label)]

    def describe(self, number: int) -> str:
        """Return shard, key and byte position of a record as a text for an error message."""
        return f"{self.path}: record {self._keys[number]} (at byte {self._starts[number]})"

    def _payload(self, number: int) -> Bytes:
        at = int(self._starts[number])
        flag, part, at = self._part(number, at)
        if flag == _FIRST:
            parts = [part]
            while flag != _LAST:
                flag, part, at = self._part(number, at)
                parts += [np.frombuffer(_MAGIC, np.uint8), part]
            part = np.concatenate(parts)
        elif flag != _WHOLE:
            raise ShardError(f"{self.describe(number)} begins in the middle of a record")
        if len(part) < _HEADER.size:
            raise ShardError(f"{self.describe(number)} is too short for a header")
        return part

    def _part(self, number: int, at: int) -> tuple[int, Bytes, int]:
        """Return the flag and payload of the part at byte `at`, and the offset of the next part."""
        if at + _WORDS.size > len(self._bytes):
            raise ShardError(f"{self.describe(number)} ends beyond the shard")
        magic, word = _WORDS.unpack_from(self._bytes.data, at)
        if magic != MAGIC:
            raise ShardError(f"{self.describe(number)} has a wrong magic number: {magic:#x}")
        flag, length = word >> _LENGTH_BITS, word & _LENGTH
        end = at + _WORDS.size + length
        if end > len(self._bytes):
            raise ShardError(f"{self.describe(number)} ends beyond the shard")
        return flag, self._bytes[at + _WORDS.size : end], -(-end // 4) * 4


def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record in order; compare its number and position with the index."""
    return indexed.scan(path, index, _read, lambda found, start, _: f"{found.name}\t{start}")


def _read(file: BinaryIO) -> Read | None:
    """Return the record at the file position, or None if it is truncated or damaged."""
    content = _content(file)
    if content is None or len(content) < _HEADER.size:
        return None
    _, label, key, _ = _HEADER.unpack_from(content)
    number = int(label) if label.is_integer() else -1
    return Read(str(key), (number,), (content[_HEADER.size :],))


def _content(file: BinaryIO) -> bytes | None:
    """Return the content of the record at the file position, with its parts joined.

    The result is None if the record is truncated or damaged.
    """
    parts: list[bytes] = []
    while True:
        head = file.read(_WORDS.size)
        if len(head) < _WORDS.size or head[:4] != _MAGIC:
            return None
        word = _WORDS.unpack(head)[1]
        flag, length = word >> _LENGTH_BITS, word & _LENGTH
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            return None
        padded = file.read(length + -length % 4)
        if len(padded) < length + -length % 4:
            return None
        parts.append(padded[:length])
        if flag in (_WHOLE, _LAST):
            return _MAGIC.join(parts)
