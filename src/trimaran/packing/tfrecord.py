"""TFRecord: a `tf.train.Example` per sample, in records with checksums; DALI's index beside it.

A record (tensorflow/core/lib/io/record_writer.h): length (uint64), masked CRC32C of the
length, the message, masked CRC32C of the message, all little-endian. The message
(tensorflow/core/example/example.proto) has the features `image/class/label` (int64, from
0), `image/encoded` and `image/filename` (bytes). Index (DALI's tfrecord2idx): position and
size of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from trimaran.files import write_atomic
from trimaran.packing.records import Read, Record, synced
from trimaran.packing.wire import field, fields, read_varint, varint

READS_DAMAGED = True
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_BYTES, _INTEGERS = 1, 3  # fields of tf.train.Feature
_LABEL, _IMAGE, _NAME = b"image/class/label", b"image/encoded", b"image/filename"


class Writer:
    """Writes `STEM.tfrecord` and `STEM.idx`."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.file, self.index = f"{stem}.tfrecord", f"{stem}.idx"
        self._folder = folder
        self._out = (folder / self.file).open("wb")
        self._lines: list[str] = []

    def add(self, record: Record) -> None:
        """Append one Example, and its line of the index."""
        message = example(record)
        length = struct.pack("<Q", len(message))
        content = length + _CRC.pack(masked(length)) + message + _CRC.pack(masked(message))
        self._lines.append(f"{self._out.tell()} {len(content)}\n")
        self._out.write(content)

    def finish(self) -> None:
        """End the shard and write its index."""
        self.close()
        synced(self._folder / self.file)
        write_atomic(self._folder / self.index, "".join(self._lines))

    def close(self) -> None:
        """Let go of the open file."""
        self._out.close()


def masked(content: bytes) -> int:
    """Return the checksum of `content` as record_writer.h stores it."""
    crc = int(google_crc32c.value(content))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(record: Record) -> bytes:
    """Return `record` as a tf.train.Example; its features are in the order of their names."""
    features = {
        _LABEL: field(_INTEGERS, field(1, varint(record.label))),
        _IMAGE: field(_BYTES, field(1, record.image)),
        _NAME: field(_BYTES, field(1, record.name.encode())),
    }
    return field(1, b"".join(
        field(1, field(1, key) + field(2, feature)) for key, feature in features.items()
    ))


def read(path: Path, index: Path | None) -> Iterator[Read | str]:
    """Yield every record with right checksums; compare the positions with the index."""
    lines = index.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if index else []
    with path.open("rb") as file:
        size, count = path.stat().st_size, 0
        while (start := file.tell()) < size:
            found = _read(file)
            if found is None:
                yield (f"is cut off or damaged in record {count}, at byte {start:,}:"
                       " no record behind it is found")
                return
            if index and lines[count : count + 1] != [f"{start} {file.tell() - start}"]:
                found = Read(found.name, fault=f"is not where index {index.name} says")
            yield found
            count += 1
    if index and len(lines) != count:
        yield f"index {index.name} has {len(lines):,} lines for {count:,} records"


def _read(file: BinaryIO) -> Read | None:
    """Return the record at the file's position; None where its length cannot be believed."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or masked(head[:8]) != _HEAD.unpack(head)[1]:
        return None
    length = _HEAD.unpack(head)[0]
    content = file.read(length + _CRC.size)
    if len(content) < length + _CRC.size:
        return None
    message = content[:length]
    if masked(message) != _CRC.unpack(content[length:])[0]:
        return Read("", fault="is damaged: its CRC32C is wrong")
    try:
        return _parse(message)
    except (ValueError, TypeError, KeyError):
        return Read("", fault="is no tf.train.Example with label and image")


def _parse(message: bytes) -> Read:
    features = {}
    for _, entry in fields(_only(message)):
        pair = dict(fields(_counted(entry)))
        features[pair[1]] = dict(fields(_counted(pair[2])))
    label, _ = read_varint(_only(_counted(features[_LABEL][_INTEGERS])), 0)
    image = _only(_counted(features[_IMAGE][_BYTES]))
    name = _only(_counted(features[_NAME][_BYTES])).decode(errors="replace")
    return Read(name, label, image)


def _only(message: bytes) -> bytes:
    """Return the value of field 1."""
    return _counted(dict(fields(message))[1])


def _counted(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number in place of bytes")
    return value
