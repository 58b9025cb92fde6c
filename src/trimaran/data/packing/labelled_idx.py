"""Reader `idx`: read grey images with one class each from a pair of IDX files for each split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from trimaran.data.contracts import OfArrays
from trimaran.data.origins import FileName, Name
from trimaran.data.packing import idx
from trimaran.data.splits import Counted
from trimaran.errors import RunError

if TYPE_CHECKING:
    from PIL import Image


class ImageSplit(Counted):
    """A split with the names of its two IDX files."""

    images: FileName
    labels: FileName


class Images(OfArrays):
    """The contract of grey images with one class each in IDX files."""

    reader: Literal["idx"]
    classes: list[str] = Field(min_length=2)
    splits: dict[Name, ImageSplit] = Field(min_length=1)

    def used(self) -> set[str]:
        """Return the names of the files that the splits are made of."""
        return {name for split in self.splits.values() for name in (split.images, split.labels)}

    @model_validator(mode="after")
    def _classes_differ(self) -> Images:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("a class is listed twice")
        return self

    def read(self, raw: Path, split: str) -> Labelled:
        """Read one split from its files in `raw`."""
        return read(self, raw, split)


@dataclass(frozen=True)
class Labelled:
    """The images of one split and their classes; implements `Samples`."""

    name: str
    images: idx.Array
    classes: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames (1), height and width in pixels."""
        _, height, width = self.images.shape
        return 1, height, width

    def __len__(self) -> int:
        return len(self.classes)

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the class of the image `number`."""
        return (self.classes[number],)

    def frames(self, number: int) -> tuple[Image.Image, ...]:
        """Return the image `number`."""
        return (self.images.image(number),)

    def histogram(self) -> list[int]:
        """Return the number of pixels of all images for each of the 256 grey values."""
        from PIL import Image  # slow to import

        count, height, width = self.images.shape
        return Image.frombytes("L", (height * width, count), self.images.values).histogram()


def read(contract: Images, raw: Path, name: str) -> Labelled:
    """Read one split from its files in `raw`.

    Raises:
        RunError: a file is not an IDX file, or differs from the contract.
    """
    split = contract.splits[name]
    images = idx.read_images(raw / split.images)
    labels = idx.read(raw / split.labels, dimensions=1)
    for path, count in ((split.images, images.shape[0]), (split.labels, labels.shape[0])):
        if count != split.samples:
            raise RunError(f"{raw / path} has {count:,} samples, not {split.samples:,}",
                           code="data-mismatch")
    highest = max(labels.values)
    if highest >= len(contract.classes):
        record = labels.values.index(highest)
        raise RunError(
            f"{raw / split.labels}: record {record} has class {highest},"
            f" the contract has {len(contract.classes)} classes",
            code="data-mismatch",
        )
    return Labelled(name, images, labels.values)


MODEL = Images
