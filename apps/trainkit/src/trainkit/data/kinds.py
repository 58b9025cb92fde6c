"""What the samples of a data set are, as `dataset.json` says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Labels = Literal["class", "multi", "none"]
"""What a sample is labelled with: one class, any number of classes, or nothing."""

SampleKind = Literal["image", "sequence"]
"""What a sample is: one image, or images of one size in order, at least one."""


@dataclass(frozen=True)
class Kind:
    """What the samples of a data set are.

    Attributes:
        labels: `labels` of `dataset.json`.
        sample: `sample` of `dataset.json`.
        encoding: ending of the image files.
    """

    labels: Labels = "class"
    sample: SampleKind = "image"
    encoding: str = ""

    @property
    def plain(self) -> bool:
        """Whether a sample is one image of one class, which every format can hold."""
        return (self.labels, self.sample) == ("class", "image")
