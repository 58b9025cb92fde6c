"""Reader `cifar`: read colour images with one class each from the binary files of CIFAR-10.

A file consists of records of 3,073 bytes without a header: the class, then 1,024 red, 1,024 green
and 1,024 blue values of an image of 32x32 pixels, row by row
(https://www.cs.toronto.edu/~kriz/cifar.html, section "Binary version").
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from trimaran.data.contracts import Counted, FileName, Name, OfArrays
from trimaran.errors import RunError, unreadable

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32
PLANE = SIDE * SIDE
"""Number of values of one channel in an image."""

CHANNELS = 3
RECORD = 1 + CHANNELS * PLANE
"""Size in bytes of a record: one class, and the values of an image."""

CHECK_CONTRACT = "correct `files`, `splits` or `classes` of the data contract: its files have the" \
                 " SHA-256 in the contract, but other content than it describes"
"""The hint for a file whose content differs from its description in the data contract.

The SHA-256 of the file is that in the contract (class `Cifar`), so the description is wrong.
"""


class FilesSplit(Counted):
    """A split with the names of its files, in the order of their images."""

    files: Annotated[list[FileName], Field(min_length=1)]


class Cifar(OfArrays):
    """The data contract of colour images with one class each, in CIFAR-10's binary format.

    A data contract describes a data set: its sources, its files with their hashes, and its splits.
    """

    reader: Literal["cifar"]
    classes: list[str] = Field(min_length=2, max_length=256)
    splits: dict[Name, FilesSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the files from which the splits are read."""
        return {name for split in self.splits.values() for name in split.files}

    @model_validator(mode="after")
    def _once(self) -> Cifar:
        files = [name for split in self.splits.values() for name in split.files]
        if len(set(files)) != len(files):
            raise ValueError("splits: a file is listed twice")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class is listed twice")
        return self

    def read(self, raw: Path, split: str) -> Coloured:
        """Read one split from its files in `raw`.

        Raises:
            RunError: a file does not consist of whole records, a class is unknown, or the number
                of images differs from the contract.
        """
        of = self.splits[split]
        records = b"".join(self._records(raw / name) for name in of.files)
        count = len(records) // RECORD
        if count != of.samples:
            raise RunError(f"{raw}: {', '.join(of.files)} have {count:,} samples, not"
                           f" {of.samples:,}", code="data-mismatch", hint=CHECK_CONTRACT)
        return Coloured(split, records)

    def _records(self, path: Path) -> bytes:
        """Return the content of a file, after checking that it consists of valid records."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error, RunError) from error
        if not content or len(content) % RECORD:
            raise RunError(f"{path} has {len(content):,} bytes, which are not records of"
                           f" {RECORD:,} bytes each", code="data-damaged",
                           hint=CHECK_CONTRACT)
        labels = content[::RECORD]
        if (highest := max(labels)) >= len(self.classes):
            raise RunError(
                f"{path}: record {labels.index(highest)} has class {highest},"
                f" the contract has {len(self.classes)} classes", code="data-mismatch",
                hint=CHECK_CONTRACT,
            )
        return content


@dataclass(frozen=True)
class Coloured:
    """The images of one split of CIFAR-10 and their classes; implements `Samples`."""

    name: str
    records: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames (1), height and width in pixels."""
        return 1, SIDE, SIDE

    @property
    def channels(self) -> Literal[1, 3]:
        """The number of channels: images are RGB."""
        return 3

    def __len__(self) -> int:
        return len(self.records) // RECORD

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the class of the image `number` as a tuple."""
        return (self.records[number * RECORD],)

    def frames(self, number: int) -> tuple[Image.Image, ...]:
        """Return a tuple that contains only the image `number`."""
        from PIL import Image  # slow to import, and not needed to load a contract

        begin = number * RECORD + 1
        planes = [
            Image.frombytes("L", (SIDE, SIDE), self.records[start : start + PLANE])
            for start in range(begin, begin + CHANNELS * PLANE, PLANE)
        ]
        return (Image.merge("RGB", planes),)

    def histogram(self) -> list[int]:
        """Return the number of pixels with each of 256 values, for red, then green, then blue."""
        from PIL import Image  # slow to import

        # The records are the rows of a picture; the values of a channel are some of its columns.
        rows = Image.frombytes("L", (RECORD, len(self)), self.records)
        return [
            number for start in range(1, RECORD, PLANE)
            for number in rows.crop((start, 0, start + PLANE, len(self))).histogram()
        ]


MODEL = Cifar
