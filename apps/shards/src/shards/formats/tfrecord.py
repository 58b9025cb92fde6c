"""TFRecord shards with DALI's index: each sample is a `tf.train.Example` in a checksummed record.

A record (tensorflow/core/lib/io/record_writer.h) has the length (uint64), the masked CRC32C of the
length, the message, and the masked CRC32C of the message, all little-endian. The message
(tensorflow/core/example/example.proto) has the features `image/class/label` (int64 from 0, one
value per class of the sample), `image/encoded` (bytes, one value per frame) and `image/filename`
(bytes). The index (DALI's tfrecord2idx) has the position and size of each record. `Reader` does not
verify the checksums, because each image would be read twice; `scan` does.
"""

from __future__ import annotations

import os
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
from shards.protobuf import encoded, field, fields, signed, varint, varints

_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
# Field numbers of tensorflow/core/example/{example,feature}.proto.
_FEATURES, _ENTRY, _KEY, _VALUE, _BYTES_LIST, _INT64_LIST, _ITEMS = 1, 1, 1, 2, 1, 3, 1
_LABEL, _IMAGE, _NAME = b"image/class/label", b"image/encoded", b"image/filename"


class Writer(IndexedWriter):
    """A writer of the shard `STEM.tfrecord` and of its index `STEM.idx`."""

    suffix = ".tfrecord"

    def add(self, record: Record) -> None:
        """Append one Example and its index line."""
        message = example(record, self.kind)
        length = struct.pack("<Q", len(message))
        content = length + _CRC.pack(masked(length)) + message + _CRC.pack(masked(message))
        self.append(content, lambda start: f"{start} {len(content)}")


def masked(content: bytes) -> int:
    """Return the masked CRC32C of `content`, as defined in record_writer.h."""
    import google_crc32c  # missing in the images of the apps, which only read

    crc = int(google_crc32c.value(content))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(record: Record, kind: Kind) -> bytes:
    """Return `record` as a serialized tf.train.Example with its features sorted by name."""
    numbers = b"".join(varint(label) for label in record.labels)
    features = {
        _LABEL: encoded(_INT64_LIST, encoded(_ITEMS, numbers) if numbers else b""),
        _IMAGE: encoded(_BYTES_LIST, b"".join(encoded(_ITEMS, one) for one in record.frames)),
        _NAME: encoded(_BYTES_LIST, encoded(_ITEMS, record.name.encode())),
    }
    if kind.labels == "none":
        del features[_LABEL]
    return encoded(_FEATURES, b"".join(
        encoded(_ENTRY, encoded(_KEY, key) + encoded(_VALUE, value))
        for key, value in features.items()
    ))


def feature(message: memoryview, name: bytes, kind: int) -> list[int | memoryview] | None:
    """Return the values of a feature of a tf.train.Example, or None if the feature is missing.

    Args:
        message: the serialized Example.
        name: name of the feature.
        kind: number of the field of tf.train.Feature that contains the values, bytes or int64.

    Raises:
        ValueError: the message is not a tf.train.Example.
    """
    features = field(message, _FEATURES)
    for key, entry in fields(features) if features is not None else ():
        if key != _ENTRY or isinstance(entry, int) or bytes(field(entry, _KEY) or b"") != name:
            continue
        value = field(entry, _VALUE)
        items = field(value, kind) if value is not None else None
        if items is not None:
            return [item for key, item in fields(items) if key == _ITEMS]
    return None


def _numbers(values: list[int | memoryview]) -> list[int]:
    """Return the numbers of an Int64List; raise ValueError if a value cannot be decoded."""
    found: list[int] = []
    for value in values:
        # The numbers are packed into bytes; old writers stored each number as one field.
        found += map(signed, [value] if isinstance(value, int) else varints(value))
    return found


class Reader:
    """A reader of the samples of one TFRecord file by its index."""

    def __init__(self, folder: Path, entry: Shard, kind: Kind, encoding: str) -> None:
        index, self._table = number_table(folder, entry)
        self.path, self._bytes = map_shard(folder, entry, self._table.sum(axis=1))
        if not len(self._table):
            return
        if self._table.min() < 0 or self._table.sum(axis=1).max() > len(self._bytes):
            raise ShardError(f"index {index} points beyond the end of {self.path.name}")
        for number in (0, -1):
            if self._length(number) != self._table[number, 1]:
                raise ShardError(f"index {index} does not belong to {self.path.name}")

    def __len__(self) -> int:
        return len(self._table)

    def frames(self, number: int) -> list[Bytes]:
        """Return the values of `image/encoded` as views of their bytes."""
        values = self._feature(number, _IMAGE, _BYTES_LIST)
        return [np.frombuffer(value, np.uint8) for value in values if not isinstance(value, int)]

    def labels(self, number: int) -> list[int]:
        """Return the values of `image/class/label`."""
        values = self._feature(number, _LABEL, _INT64_LIST)
        try:
            return _numbers(values)
        except ValueError as error:
            raise ShardError(f"{self.describe(number)}: {_LABEL.decode()} has {error}") from error

    def describe(self, number: int) -> str:
        """Return shard, number and byte position of a record as a text for an error message."""
        return f"{self.path}: record {number} (at byte {self._table[number, 0]})"

    def _length(self, number: int) -> int:
        """Return the size of a record in bytes, computed from the length field of the record."""
        start = int(self._table[number, 0])
        length = self._bytes[start : start + 8].tobytes()
        return int.from_bytes(length, "little") + _HEAD.size + _CRC.size

    def _feature(self, number: int, name: bytes, kind: int) -> list[int | memoryview]:
        start, size = self._table[number].tolist()
        if self._length(number) != size:
            raise ShardError(f"{self.describe(number)} has another length than its index says")
        message = self._bytes[start + _HEAD.size : start + size - _CRC.size].data
        try:
            found = feature(message, name, kind)
        except ValueError as error:
            raise ShardError(
                f"{self.describe(number)} is not a tf.train.Example ({error})"
            ) from error
        if found is None:
            raise ShardError(f"{self.describe(number)} has no {name.decode()}")
        return found


def scan(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record in order; verify the checksums, and compare positions with the index."""
    return indexed.scan(
        path, index, lambda file: _read(file, kind), lambda _, start, size: f"{start} {size}"
    )


def _read(file: BinaryIO, kind: Kind) -> Read | None:
    """Return the record at the file position, or None if its length is damaged or too large."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or masked(head[:8]) != _HEAD.unpack(head)[1]:
        return None
    length = _HEAD.unpack(head)[0]
    if length + _CRC.size > os.fstat(file.fileno()).st_size - file.tell():
        return None
    content = file.read(length + _CRC.size)
    message = content[:length]
    if masked(message) != _CRC.unpack(content[length:])[0]:
        return Read("", fault="is damaged: its CRC32C is wrong")
    try:
        found = _parsed(memoryview(message), kind)
    except ValueError:
        found = None
    return found or Read("", fault="is not a tf.train.Example with labels and images of its kind")


def _parsed(message: memoryview, kind: Kind) -> Read | None:
    """Return labels, frames and name of an Example, or None if a feature is missing."""
    labels = [] if kind.labels == "none" else feature(message, _LABEL, _INT64_LIST)
    frames = feature(message, _IMAGE, _BYTES_LIST)
    names = feature(message, _NAME, _BYTES_LIST)
    if labels is None or frames is None or not names:
        return None
    images = tuple(bytes(one) for one in frames if not isinstance(one, int))
    if isinstance(names[-1], int) or len(images) < len(frames):
        return None
    return Read(bytes(names[-1]).decode(errors="replace"), tuple(_numbers(labels)), images)
