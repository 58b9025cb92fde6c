"""Read the segments of a JPEG file, ITU-T T.81, and the properties of its picture."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from shards.picturefacts import EXIF, Facts, fault, orientation_in, orientation_of

MAGIC = b"\xff\xd8\xff"
_HUFFMAN, _ARITHMETIC = (0xC0, 0xC1, 0xC2), (0xC9, 0xCA)  # table B.1


def facts(content: bytes) -> Facts:
    """Return the properties of a JPEG file from its headers, without decoding the pixels.

    Raises:
        BadImage: the file is damaged, or no decoder supports its kind.
    """
    frame: tuple[int, bytes] | None = None
    tags = []
    for marker, start, end in segments(content):
        body = content[start + 4 : end]
        if marker == 0xE1 and body.startswith(EXIF):
            tags.append(orientation_of(body[len(EXIF):]))
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = marker, body
    if frame is None or len(frame[1]) < 6:
        raise fault("a JPEG file without a picture, or damaged")
    marker, body = frame
    depth, height, width, channels = struct.unpack_from(">BHHB", body)
    if marker not in (*_HUFFMAN, *_ARITHMETIC):
        raise fault(f"a JPEG file of the kind SOF{marker - 0xC0}; save it anew")
    if depth != 8 or channels not in (1, 3, 4):
        raise fault(f"a JPEG file of {depth} bits and {channels} channels;"
                       " save it with 8 bits, RGB or grey")
    return Facts("jpg", width, height, orientation_in(tags),
                 common=marker in _HUFFMAN and channels != 4)


def segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, begin and end (byte positions) of each segment of a JPEG file up to its pixels.

    Raises:
        BadImage: the file is truncated before its pixels.
    """
    at = 2
    while True:
        at = content.find(b"\xff", at)  # decoders skip bytes between segments
        while at >= 0 and content[at + 1 : at + 2] == b"\xff":
            at += 1
        if at < 0 or at + 4 > len(content):
            raise fault("a JPEG file that is truncated before its pixels")
        marker = content[at + 1]
        if marker in (0x00, 0x01, 0xD8) or 0xD0 <= marker <= 0xD7:  # no length follows
            at += 2
            continue
        end = at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
        if marker == 0xD9 or end < at + 4 or end > len(content):
            raise fault("a JPEG file that is truncated before its pixels")
        yield marker, at, end
        if marker == 0xDA:
            return
        at = end


def without(content: bytes, unwanted: Callable[[int, bytes], bool]) -> bytes:
    """Return a JPEG file without the application segments for which `unwanted` returns true.

    Args:
        content: the JPEG file.
        unwanted: function that gets the marker and the body of a segment.
    """
    parts, at = [], 0
    for marker, start, end in segments(content):
        if 0xE0 <= marker <= 0xEF and unwanted(marker, content[start + 4 : end]):
            parts.append(content[at:start])
            at = end
    return b"".join([*parts, content[at:]])


def without_exif(content: bytes) -> bytes:
    """Return a JPEG file without its EXIF segments."""
    return without(content, lambda marker, body: marker == 0xE1 and body.startswith(EXIF))
