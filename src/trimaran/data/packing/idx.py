"""Reader `idx`: read grey images with one class each from a pair of IDX files for each split.

IDX is the format of MNIST and similar data sets: two zero bytes, a type (0x08: unsigned bytes), the
number of dimensions, each dimension as a 32-bit big-endian number, then the values, the last
dimension varying fastest. A file that deviates from this format is rejected.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from trimaran.data.contracts import Counted, FileName, Name, OfArrays
from trimaran.errors import RunError, unreadable

if TYPE_CHECKING:
    from PIL import Image

UNSIGNED_BYTE = 0x08
_TYPES = {0x08: "unsigned bytes", 0x09: "signed bytes", 0x0B: "shorts", 0x0C: "ints",
          0x0D: "floats", 0x0E: "doubles"}


@dataclass(frozen=True)
class Array:
    """An array of unsigned bytes; the number of `values` is the product of `shape`."""

    shape: tuple[int, ...]
    values: bytes

    def image(self, number: int) -> Image.Image:
        """Return the grey image `number` of an array with the shape (count, rows, columns)."""
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
            " not unsigned bytes", code="data-damaged",
        )
    if found != dimensions:
        raise RunError(f"{path} has {found} dimensions, not {dimensions}", code="data-damaged")
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


class ImageSplit(Counted):
    """A split with the names of its two IDX files: images and labels."""

    images: FileName
    labels: FileName


class Images(OfArrays):
    """The data contract of grey images with one class each in IDX files."""

    reader: Literal["idx"]
    classes: list[str] = Field(min_length=2)
    splits: dict[Name, ImageSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the files from which the splits are read."""
        return {name for split in self.splits.values() for name in (split.images, split.labels)}

    @model_validator(mode="after")
    def _classes_differ(self) -> Images:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class is listed twice")
        return self

    def read(self, raw: Path, split: str) -> Labelled:
        """Read one split from its files in `raw`.

        Raises:
            RunError: a file is not an IDX file, or differs from the contract.
        """
        of = self.splits[split]
        images = read_images(raw / of.images)
        labels = read(raw / of.labels, dimensions=1)
        for path, count in ((of.images, images.shape[0]), (of.labels, labels.shape[0])):
            if count != of.samples:
                raise RunError(f"{raw / path} has {count:,} samples, not {of.samples:,}",
                               code="data-mismatch")
        highest = max(labels.values)
        if highest >= len(self.classes):
            record = labels.values.index(highest)
            raise RunError(
                f"{raw / of.labels}: record {record} has class {highest},"
                f" the contract has {len(self.classes)} classes", code="data-mismatch",
            )
        return Labelled(split, images, labels.values)


@dataclass(frozen=True)
class Labelled:
    """The grey images of one split and their classes; implements `Samples`."""

    name: str
    images: Array
    classes: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames (1), height and width in pixels."""
        _, height, width = self.images.shape
        return 1, height, width

    @property
    def channels(self) -> Literal[1, 3]:
        """The number of channels: images are grey."""
        return 1

    def __len__(self) -> int:
        return len(self.classes)

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the class of the image `number` as a tuple."""
        return (self.classes[number],)

    def frames(self, number: int) -> tuple[Image.Image, ...]:
        """Return a tuple that contains only the image `number`."""
        return (self.images.image(number),)

    def histogram(self) -> list[int]:
        """Return the number of pixels in all images that have each of the 256 grey values."""
        from PIL import Image  # slow to import

        count, height, width = self.images.shape
        return Image.frombytes("L", (height * width, count), self.images.values).histogram()


MODEL = Images
