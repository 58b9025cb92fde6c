"""Read IDX files, the format of MNIST and its kin, refusing whatever is not exactly right.

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

from trimaran.errors import RunError

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
        from PIL import Image  # slow to import: contracts are loaded more often than packed

        _, height, width = self.shape
        size = height * width
        raw = self.values[number * size : (number + 1) * size]
        return Image.frombytes("L", (width, height), raw)


def read_images(path: Path) -> Array:
    """Read the images (count, rows, columns) of the IDX file at `path`.

    Raises:
        RunError: naming the file and what is wrong with it.
    """
    found = read(path, dimensions=3)
    if 0 in found.shape:
        raise RunError(f"{path} holds images without pixels: {found.shape}")
    return found


def read(path: Path, dimensions: int) -> Array:
    """Read the uncompressed IDX file of unsigned bytes at `path`.

    It must have so many `dimensions`: 1 for labels, 3 for images (count, rows, columns).

    Raises:
        RunError: naming the file and what is wrong with it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        begin = content[:4].hex() or "nothing"
        raise RunError(f"{path} is not an IDX file: it begins with {begin}")
    kind, found = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise RunError(
            f"{path} holds {_TYPES.get(kind, f'values of unknown type 0x{kind:02x}')},"
            " unsigned bytes are needed"
        )
    if found != dimensions:
        raise RunError(f"{path} has {found} dimensions, {dimensions} are needed")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise RunError(f"{path} is cut off inside its header ({len(content)} of {start} bytes)")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + math.prod(shape)
    if len(content) != expected:
        fault = "is cut off" if len(content) < expected else "has bytes after its end"
        raise RunError(f"{path} {fault}: {len(content):,} bytes, its header says {expected:,}")
    return Array(shape, content[start:])
