"""The kinds of samples and of labels of a data set, and the formats of packed data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ImageFormat = Literal["webdataset", "tfrecord", "recordio", "lmdb", "hdf5"]
"""The file format in which image and sequence data sets are packed."""

FormatName = Literal[ImageFormat, "tokens"]
"""The file format of any packed data set; `tokens` is the format of text data sets."""

DocumentRule = Literal["file", "line", "blank-lines", "dictd"]
"""The rule that divides the files of a text into documents.

A document is a whole file, a line that is not empty, the lines between two empty lines, or an entry
of a dictd dictionary. In files of JSON lines, each line is a document under every rule.
"""

TokenType = Literal["uint16", "uint32"]
"""The type of the stored tokens of a text."""

Labels = Literal["class", "multi", "none"]
"""The kind of label of a sample: one class, any number of classes, or no label."""

SampleKind = Literal["image", "sequence", "text"]
"""The kind of a sample.

An image; a sequence of frames, in order and of equal size; or a text, which is one document.
"""

SampleWord = Literal["class", "multi", "none", "sequence", "text"]
"""The kind of a data set as one word.

For images, it is the kind of their labels; for sequences and texts, the kind of the samples.
"""


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
        """The word by which `app.yaml` of an app names this kind of data."""
        return self.labels if self.sample == "image" else self.sample
