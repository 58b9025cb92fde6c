"""Read IDX files, the format of MNIST and similar data sets, and reject every deviation from it.

The format: two zero bytes, a type (0x08: unsigned bytes), the number of dimensions,
each dimension as a 32-bit big-endian number, then the values, the last dimension
varying fastest.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trimaran.errors import RunError, unreadable

if TYPE_CHECKING:
    from PIL import Image

UNSIGNED_BYTE = 0x08
_TYPES = {0x08: "unsigned bytes", 0x09: "signed bytes", 0x0B: "shorts", 0x0C: "ints",
          0x0D: "floats", 0x0E: "doubles"}


@dataclass(frozen=True)
class Array:
    """An array of unsigned bytes; `values` has the product of `shape` bytes."""

    shape: tuple[int, ...]
    values: bytes

    def image(self, number: int) -> Image.Image:
        """Return the grey image `number` of an array of three dimensions."""
        from PIL import Image  # slow to import, and not needed to load a contract

        _, height, width = self.shape
        size = height * width
        raw = self.values[number * size : (number + 1) * size]
        return Image.frombytes("L", (width, height), raw)


def read_images(path: Path) -> Array:
    """Read the images (count, rows, columns) of the IDX file at `path`.

    Raises:
        RunError: the file cannot be read, or is not an IDX file of images.
    """
    array = read(path, dimensions=3)
    if 0 in array.shape:
        raise RunError(f"{path} contains images without pixels: {array.shape}", code="data-damaged")
    return array


def read(path: Path, dimensions: int) -> Array:
    """Read the uncompressed IDX file of unsigned bytes at `path`.

    Args:
        path: the file.
        dimensions: the required number of dimensions: 1 for labels, 3 for images (count, rows,
            columns).

    Raises:
        RunError: the file cannot be read, or is not an IDX file of this kind.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, RunError) from error
    if len(content) < 4 or content[:2] != b"\0\0":
        begin = content[:4].hex() or "nothing"
        raise RunError(f"{path} is not an IDX file: it begins with {begin}", code="data-damaged")
    kind, found = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise RunError(
            f"{path} contains {_TYPES.get(kind, f'values of unknown type 0x{kind:02x}')},"
            " not unsigned bytes",
            code="data-damaged",
        )
    if found != dimensions:
        raise RunError(f"{path} has {found} dimensions, {dimensions} are required",
                       code="data-damaged")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise RunError(f"{path} is truncated in its header ({len(content)} of {start} bytes)",
                       code="data-damaged")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + math.prod(shape)
    if len(content) != expected:
        fault = "is truncated" if len(content) < expected else "has bytes after its end"
        raise RunError(f"{path} {fault}: {len(content):,} bytes, by its header {expected:,}",
                       code="data-damaged")
    return Array(shape, content[start:])
