"""What a picture file says at its begin, and what EXIF says of its orientation."""

from __future__ import annotations

import struct
from dataclasses import dataclass

EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112  # EXIF 2.32, table 4


class BadImage(Exception):  # noqa: N818 - the fault of an image, named where it is collected
    """An image cannot be decoded; says why."""


def fault(text: object) -> BadImage:
    """Return the error of a file that cannot be decoded."""
    return BadImage(f"cannot be decoded: {text}")


@dataclass(frozen=True)
class Facts:
    """What a picture file says at its begin.

    Attributes:
        kind: `jpg`, `png`, or "" for one of `OTHERS`.
        width: of the stored pixels, which may have to be turned.
        height: of them.
        orientation: 1 to 8, as EXIF says; 0 where it says several or says it several times, which
            counts as upright, and which decoders do not read alike.
        common: whether every decoder reads the stored pixels.
        deep: whether they are grey of 16 bits.
    """

    kind: str
    width: int
    height: int
    orientation: int = 1
    common: bool = True
    deep: bool = False

    @property
    def plain(self) -> bool:
        """Whether every decoder sees the same picture."""
        return self.common and self.orientation == 1

    @property
    def sideways(self) -> bool:
        """Whether width and height of the upright picture are the other way round."""
        return self.orientation >= 5

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture."""
        return (self.height, self.width) if self.sideways else (self.width, self.height)


def orientation_of(exif: bytes) -> int:
    """Return what EXIF (a TIFF header and what follows) says of the orientation; 0: several.

    What cannot be read is none, and none is upright: so do the decoders, too.
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
    """Return the orientation of a file with these `tags`; 0 where they contradict each other.

    Of two, decoders take the first, the last or none, and one of them crashes.
    """
    return 0 if len(tags) > 1 and tags[0] == 1 else tags[0] if tags else 1
