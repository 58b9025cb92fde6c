"""The properties in the headers of a picture file, and the orientation in its EXIF data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112  # EXIF 2.32, table 4


class BadImage(Exception):  # noqa: N818 - it is collected as a fault of an image
    """Error for an image that cannot be decoded; the message contains the cause."""


def fault(text: object) -> BadImage:
    """Return the error for a file that cannot be decoded, with the cause `text`."""
    return BadImage(f"cannot be decoded: {text}")


@contextmanager
def decoding(failure: Callable[[Exception], Exception] = fault) -> Iterator[None]:
    """Convert an error in the `with` block to the error that `failure` returns for it.

    BadImage and MemoryError are raised unchanged.

    On damaged files, decoders raise errors of nearly any class.
    """
    try:
        yield
    except (MemoryError, BadImage):
        raise
    except Exception as error:
        raise failure(error) from error


@dataclass(frozen=True)
class Facts:
    """The properties of a picture file from its headers.

    Attributes:
        kind: `jpg`, `png`, or "" for a format of `picturefile.OTHERS`.
        width: width in pixels, before a rotation by EXIF.
        height: height in pixels, before a rotation by EXIF.
        orientation: 1 to 8 as in EXIF, or 0 if the file has several orientations, which decoders
            interpret differently; this project treats such a picture as upright.
        common: whether all decoders return the same pixels for the file.
        deep: whether the pixels are grey with 16 bits.
    """

    kind: str
    width: int
    height: int
    orientation: int = 1
    common: bool = True
    deep: bool = False

    @property
    def plain(self) -> bool:
        """Whether every decoder returns the same picture."""
        return self.common and self.orientation == 1

    @property
    def sideways(self) -> bool:
        """Whether the orientation swaps width and height."""
        return self.orientation >= 5

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture in pixels."""
        return (self.height, self.width) if self.sideways else (self.width, self.height)


def orientation_of(exif: bytes) -> int:
    """Return the orientation (1 to 8) in EXIF data, which begin with a TIFF header.

    Unreadable or missing orientations count as 1, upright, as in common decoders. The result is 0
    if the tag has several values.
    """
    order = {b"II": "<", b"MM": ">"}.get(exif[:2], "<")
    try:
        _, at = struct.unpack_from(f"{order}HI", exif, 2)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, form, values = struct.unpack_from(f"{order}HHI", exif, entry)
            if tag == _ORIENTATION:
                if form not in (3, 4) or values != 1:  # not one number of 16 or 32 bits
                    return 0 if form in (3, 4) else 1
                found = struct.unpack_from(order + "HI"[form - 3], exif, entry + 8)[0]
                return int(found) if found in range(1, 9) else 1
    except struct.error:
        return 1
    return 1


def orientation_in(tags: list[int]) -> int:
    """Return the orientation of a file with the EXIF orientations `tags`; 0 if they are ambiguous.

    If a file has two EXIF blocks, some decoders use the first block, some use the last block, and
    some ignore both; one decoder crashes.
    """
    return 0 if len(tags) > 1 and tags[0] == 1 else tags[0] if tags else 1
