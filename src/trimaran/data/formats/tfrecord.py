"""TFRecord: a `tf.train.Example` per sample, in records with checksums; DALI's index beside it.

A record (tensorflow/core/lib/io/record_writer.h): length (uint64), masked CRC32C of the
length, the message, masked CRC32C of the message, all little-endian. The message
(tensorflow/core/example/example.proto) has the features `image/class/label` (int64, from
0; as many as the sample has classes), `image/encoded` (bytes; as many as it has frames) and
`image/filename` (bytes). Index (DALI's tfrecord2idx): position and
size of each record.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from trimaran.data.formats import indexed
from trimaran.data.formats.indexed import IndexedWriter
from trimaran.data.formats.records import Read, Record
from trimaran.data.formats.wire import field, fields, read_varint, varint
from trimaran.data.kinds import Kind

READS_DAMAGED = True
INDEXED = True
PLAIN_ONLY = False
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_BYTES, _INTEGERS = 1, 3  # fields of tf.train.Feature
_LABEL, _IMAGE, _NAME = b"image/class/label", b"image/encoded", b"image/filename"


class Writer(IndexedWriter):
    """Writes `STEM.tfrecord` and `STEM.idx`."""

    suffix = ".tfrecord"

    def add(self, record: Record) -> None:
        """Append one Example, and its line of the index."""
        message = example(record, self.kind)
        length = struct.pack("<Q", len(message))
        content = length + _CRC.pack(masked(length)) + message + _CRC.pack(masked(message))
        self.append(content, lambda start: f"{start} {len(content)}")


def masked(content: bytes) -> int:
    """Return the checksum of `content` as record_writer.h stores it."""
    crc = int(google_crc32c.value(content))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(record: Record, kind: Kind) -> bytes:
    """Return `record` as a tf.train.Example; its features are in the order of their names."""
    numbers = b"".join(varint(label) for label in record.labels)
    features = {
        _LABEL: field(_INTEGERS, field(1, numbers) if numbers else b""),
        _IMAGE: field(_BYTES, b"".join(field(1, frame) for frame in record.frames)),
        _NAME: field(_BYTES, field(1, record.name.encode())),
    }
    if kind.labels == "none":
        del features[_LABEL]
    return field(1, b"".join(
        field(1, field(1, key) + field(2, feature)) for key, feature in features.items()
    ))


def read(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record with right checksums; compare the positions with the index."""
    return indexed.read(
        path, index, lambda file: _read(file, kind), lambda _, start, size: f"{start} {size}"
    )


def _read(file: BinaryIO, kind: Kind) -> Read | None:
    """Return the record at the file's position; None where its length cannot be believed."""
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
        return _parse(message, kind)
    except (ValueError, TypeError, KeyError):
        return Read("", fault="is no tf.train.Example with the labels and images of its kind")


def _parse(message: bytes, kind: Kind) -> Read:
    features = {}
    for _, entry in fields(_only(message)):
        pair = dict(fields(_counted(entry)))
        features[pair[1]] = dict(fields(_counted(pair[2])))
    labels = () if kind.labels == "none" else _numbers(_counted(features[_LABEL][_INTEGERS]))
    frames = tuple(
        _counted(value) for number, value in fields(_counted(features[_IMAGE][_BYTES]))
        if number == 1
    )
    name = _only(_counted(features[_NAME][_BYTES])).decode(errors="replace")
    return Read(name, labels, frames)


def _numbers(message: bytes) -> tuple[int, ...]:
    """Return the numbers of an Int64List, packed into field 1."""
    packed, found, at = (_only(message) if message else b""), [], 0
    while at < len(packed):
        number, at = read_varint(packed, at)
        found.append(number)
    return tuple(found)


def _only(message: bytes) -> bytes:
    """Return the value of field 1."""
    return _counted(dict(fields(message))[1])


def _counted(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number in place of bytes")
    return value
