"""RecordIO of MXNet: a header with the label and an image file per sample; MXNet's index beside it.

A record (dmlc/recordio.h): the magic number, a word with a flag (3 bits) and the length (29
bits), the content, zeros up to a multiple of four. Where the content has the magic number at
a multiple of four, the record is cut there into parts, which do not repeat it: flag 1 for the
first, 2 for the next, 3 for the last; 0 is a whole record. The content
(mxnet/src/io/image_recordio.h) begins with flag 0, the label as a float, and two 64-bit
numbers, of which the first is the sample's. Index: number and position of each record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trimaran.data.formats import indexed
from trimaran.data.formats.indexed import IndexedWriter
from trimaran.data.formats.records import Read, Record
from trimaran.data.kinds import Kind

READS_DAMAGED = True
INDEXED = True
PLAIN_ONLY = True
MAGIC = struct.pack("<I", 0xCED7230A)
_LENGTH_BITS = 29
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_WORDS = struct.Struct("<II")
_HEADER = struct.Struct("<IfQQ")


class Writer(IndexedWriter):
    """Writes `STEM.rec` and `STEM.idx`."""

    suffix = ".rec"

    def add(self, record: Record) -> None:
        """Append one record, and its line of the index.

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
            framed += [MAGIC, struct.pack("<I", flag << _LENGTH_BITS | len(part)), part,
                       bytes(-len(part) % 4)]
        self.append(b"".join(framed), lambda start: f"{record.key}\t{start}")


def split(content: bytes) -> list[bytes]:
    """Return the parts of `content` between the magic numbers at multiples of four."""
    parts, start, at = [], 0, content.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            parts.append(content[start:at])
            start = at + 4
        at = content.find(MAGIC, at + 1 if at % 4 else at + 4)
    return [*parts, content[start:]]


def read(path: Path, index: Path | None, kind: Kind) -> Iterator[Read | str]:
    """Yield every record; compare number and position with the index."""
    return indexed.read(path, index, _read, lambda found, start, _: f"{found.name}\t{start}")


def _read(file: BinaryIO) -> Read | None:
    """Return the record at the file's position; None where it is cut off or damaged."""
    content = _content(file)
    if content is None or len(content) < _HEADER.size:
        return None
    _, label, key, _ = _HEADER.unpack(content[: _HEADER.size])
    number = int(label) if label.is_integer() else -1
    return Read(str(key), (number,), (content[_HEADER.size :],))


def _content(file: BinaryIO) -> bytes | None:
    """Return the content of the record at the file's position, its parts joined again."""
    parts: list[bytes] = []
    while True:
        head = file.read(_WORDS.size)
        if len(head) < _WORDS.size or head[:4] != MAGIC:
            return None
        word = _WORDS.unpack(head)[1]
        flag, length = word >> _LENGTH_BITS, word & (1 << _LENGTH_BITS) - 1
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            return None
        padded = file.read(length + -length % 4)
        if len(padded) < length + -length % 4:
            return None
        parts.append(padded[:length])
        if flag in (_WHOLE, _LAST):
            return MAGIC.join(parts)
