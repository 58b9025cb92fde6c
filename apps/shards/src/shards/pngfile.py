"""Read the chunks of a PNG file, and find faults that make decoders stop."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from shards.picturefacts import EXIF, BadImage, Facts, fault, orientation_in, orientation_of

MAGIC = b"\x89PNG\r\n\x1a\n"
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # PNG colour type -> samples per pixel
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2))
"""The seven passes of interlaced PNG: first column, first row, column step and row step."""


def chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, begin and end (byte positions) of each chunk of a PNG file.

    Raises:
        BadImage: the file is truncated.
    """
    at, name = len(MAGIC), b""
    while name != b"IEND":
        if at + 12 > len(content):
            raise fault("a truncated PNG file, whose last chunk IEND is missing")
        length, name = struct.unpack_from(">I4s", content, at)
        end = at + 12 + length
        if end > len(content):
            raise fault(f"a PNG file that is truncated in {_chunk(name, at)}")
        yield name, at, end
        at = end


def _chunk(name: bytes, at: int) -> str:
    return f"the chunk {name.decode('ascii', 'backslashreplace')!r} at byte {at:,}"


def facts(content: bytes) -> Facts:
    """Return the properties of a PNG file from its headers, without decoding the pixels.

    Raises:
        BadImage: the file is damaged, has several pictures, or no decoder reads it.
    """
    tags, pictures = [], 1
    for name, at, end in chunks(content):
        if name == b"eXIf":
            tags.append(orientation_of(content[at + 8 : end - 4].removeprefix(EXIF)))
        elif name == b"acTL" and end - at >= 20:
            pictures = max(1, *struct.unpack_from(">I", content, at + 8))
    if pictures > 1:
        raise BadImage(f"has {pictures} pictures in it; one is needed")
    width, height, depth, colours, _ = _head(content)
    return Facts("png", width, height, orientation_in(tags), deep=depth == 16 and colours == 0)


def _head(content: bytes) -> tuple[int, int, int, int, int]:
    """Return width, height, bit depth, colour type and interlacing of a PNG file."""
    name, at, end = next(chunks(content))
    if name != b"IHDR" or end - at != 25:
        raise fault(f"a PNG file that begins with {_chunk(name, at)}, or damaged")
    width, height, depth, colours, packing, filtering, interlaced = struct.unpack_from(
        ">IIBBBBB", content, at + 8
    )
    if depth not in _DEPTHS.get(colours, ()) or packing or filtering or interlaced > 1:
        raise fault(f"a PNG file of {depth} bits, colour type {colours}, or damaged")
    return width, height, depth, colours, interlaced


def check(content: bytes) -> None:
    """Raise BadImage if a decoder would stop at the chunks, checksums or rows of a PNG file."""
    rows, palette, before = _Rows(content), False, b""
    for name, at, end in chunks(content):
        where = _chunk(name, at)
        body = memoryview(content)[at + 8 : end - 4]
        if zlib.crc32(memoryview(content)[at + 4 : end - 4]) != int.from_bytes(
            content[end - 4 : end], "big"
        ):
            raise fault(f"{where} does not have its checksum")
        if not name[0] & 0x20 and name not in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
            raise fault(f"no decoder supports {where}")
        if name == b"IDAT":
            if rows.begun and before != b"IDAT":
                raise fault(f"other pixels and other chunks lie before {where}")
            rows.add(body)
        palette = palette or (name == b"PLTE" and not rows.begun and 0 < len(body) <= 768)
        before = name
    if rows.colours == 3 and not palette:
        raise fault("it has no palette before its pixels")
    rows.end()


class _Rows:
    """A counter of the decompressed bytes of all rows of a PNG file, to find missing rows."""

    def __init__(self, content: bytes) -> None:
        width, height, depth, self.colours, interlaced = _head(content)
        bits = depth * _SAMPLES[self.colours]
        self._wanted = 0
        for column, row, right, down in _ADAM7 if interlaced else ((0, 0, 1, 1),):
            wide, high = -(-(width - column) // right), -(-(height - row) // down)
            self._wanted += (1 + (wide * bits + 7) // 8) * high if wide > 0 else 0
        self._found, self._unpack = 0, zlib.decompressobj()
        self.begun = False

    def add(self, body: bytes | memoryview) -> None:
        """Decompress a part of the rows, and count its bytes.

        The part is decompressed in small pieces, because a few bytes may expand to many.
        """
        self.begun = True
        rest: bytes | memoryview = body
        while len(rest) and not self._unpack.eof and self._found <= 2 * self._wanted:
            try:
                self._found += len(self._unpack.decompress(rest, 1 << 20))
            except zlib.error as error:
                raise fault(error) from error
            rest = self._unpack.unconsumed_tail

    def end(self) -> None:
        """Raise BadImage if rows are missing."""
        if self._found < self._wanted or not self._unpack.eof:
            raise fault(f"a truncated PNG file, which has {self._found:,} of the"
                           f" {self._wanted:,} bytes of its rows, or no end of them")


def only(content: bytes, wanted: tuple[bytes, ...]) -> bytes:
    """Return a PNG file with only the chunks whose names are in `wanted`."""
    parts = [content[at:end] for name, at, end in chunks(content) if name in wanted]
    return MAGIC + b"".join(parts)


def without_exif(content: bytes) -> bytes:
    """Return a PNG file without its EXIF chunks."""
    kept = [content[at:end] for name, at, end in chunks(content) if name != b"eXIf"]
    return MAGIC + b"".join(kept)
