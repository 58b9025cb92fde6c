"""Reader `idx`: grey images of one class each, in a pair of IDX files for each split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from trimaran.data.contracts import Images
from trimaran.data.packing import idx
from trimaran.errors import RunError


@dataclass(frozen=True)
class Labelled:
    """Images and their classes: one of the `Samples` of `arrays`, alike in its methods."""

    name: str
    images: idx.Array
    classes: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """One frame, height and width."""
        _, height, width = self.images.shape
        return 1, height, width

    def __len__(self) -> int:
        return len(self.classes)

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the class of an image."""
        return (self.classes[number],)

    def frames(self, number: int) -> tuple[Image.Image, ...]:
        """Return one image."""
        return (self.images.image(number),)

    def histogram(self) -> list[int]:
        """Return how often each grey value is in all images."""
        count, height, width = self.images.shape
        return Image.frombytes("L", (height * width, count), self.images.values).histogram()


def read(contract: Images, raw: Path, name: str) -> Labelled:
    """Read one split from its files in `raw`.

    Raises:
        RunError: a file is no IDX file, or disagrees with the contract.
    """
    split = contract.splits[name]
    images = idx.read_images(raw / split.images)
    labels = idx.read(raw / split.labels, dimensions=1)
    for path, count in ((split.images, images.shape[0]), (split.labels, labels.shape[0])):
        if count != split.samples:
            raise RunError(f"{raw / path} has {count:,} samples, not {split.samples:,}")
    highest = max(labels.values)
    if highest >= len(contract.classes):
        record = labels.values.index(highest)
        raise RunError(
            f"{raw / split.labels}: record {record} has class {highest},"
            f" the contract has {len(contract.classes)} classes"
        )
    return Labelled(name, images, labels.values)
