"""The kinds of samples and of labels of a data set, and the formats of packed data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["webdataset", "tfrecord", "recordio", "lmdb", "hdf5"]
"""The format of a packed data set."""

Labels = Literal["class", "multi", "none"]
"""The kind of label of a sample: one class, any number of classes, or no label."""

SampleKind = Literal["image", "sequence"]
"""The kind of a sample: one image, or a sequence of frames, in order and of equal size."""

SampleWord = Literal["class", "multi", "none", "sequence"]
"""The kind of a data set in one word: "sequence", or for images the kind of their labels."""


@dataclass(frozen=True)
class Kind:
    """The kind of the labels and the kind of the samples of a data set."""

    labels: Labels = "class"
    sample: SampleKind = "image"

    @property
    def plain(self) -> bool:
        """Whether each sample is one image with one class, which every format can store."""
        return self == Kind()

    @property
    def word(self) -> SampleWord:
        """The word for this kind of data in an app card."""
        return "sequence" if self.sample == "sequence" else self.labels
