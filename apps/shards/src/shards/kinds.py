"""What the samples of a data set are, and how they are packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["webdataset", "tfrecord", "recordio", "lmdb", "hdf5"]
"""How a data set is packed."""

Labels = Literal["class", "multi", "none"]
"""What a sample is labelled with: one class, any number of classes, or nothing."""

SampleKind = Literal["image", "sequence"]
"""What one sample is: an image, or the frames of a sequence, in order and of one size."""

SampleWord = Literal["class", "multi", "none", "sequence"]
"""What a sample is, in one word: images by their labels, or sequences of them."""


@dataclass(frozen=True)
class Kind:
    """What the samples of a data set are."""

    labels: Labels = "class"
    sample: SampleKind = "image"

    @property
    def plain(self) -> bool:
        """Whether a sample is one image of one class, which every format can hold."""
        return self == Kind()

    @property
    def word(self) -> SampleWord:
        """What the card of an app calls them."""
        return "sequence" if self.sample == "sequence" else self.labels
