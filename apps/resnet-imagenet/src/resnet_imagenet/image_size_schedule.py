"""The size of the training images in each epoch: `224`, or growing as in `128:0,160:12,224:24`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from itertools import pairwise

LEAST = 8  # smallest side in pixels, limited by the strides of the networks
MOST = 4096
STAGE = re.compile(r"(\d{1,5}):(\d{1,5})")


@dataclass(frozen=True)
class ImageSizes:
    """Sides of the training images in pixels (progressive resizing).

    Small images in the first epochs take less time. The evaluation always uses the size of the last
    stage. Sources: Howard, DAWNBench 2018; for the effect of the size on the accuracy, Touvron et
    al., arXiv:1906.06423.

    Attributes:
        stages: pairs (first epoch, size) in ascending order; the first stage begins at epoch 0.
    """

    stages: tuple[tuple[int, int], ...]

    def at(self, epoch: int) -> int:
        """Return the size of the training images in `epoch`, counted from 0."""
        return [size for first, size in self.stages if first <= epoch][-1]

    @property
    def last(self) -> int:
        """The side in pixels of the images in the last stage, in evaluations and predictions."""
        return self.stages[-1][1]

    def __str__(self) -> str:
        if len(self.stages) == 1:
            return str(self.last)
        return ",".join(f"{size}:{first}" for first, size in self.stages)


def image_sizes(text: str) -> ImageSizes:
    """Parse `SIZE`, or `SIZE:EPOCH,…` with ascending epochs from 0.

    Raises:
        argparse.ArgumentTypeError: the text is malformed.
    """
    found = [STAGE.fullmatch(word) for word in (f"{text}:0" if text.isdigit() else text).split(",")]
    if None in found:
        raise argparse.ArgumentTypeError(
            f"must be SIZE, or SIZE:EPOCH,SIZE:EPOCH,… as in 128:0,160:12,224:24, got '{text}'"
        )
    stages = tuple((int(match[2]), int(match[1])) for match in found if match)
    epochs = [first for first, _ in stages]
    if epochs[0] != 0 or any(a >= b for a, b in pairwise(epochs)):
        raise argparse.ArgumentTypeError(f"epochs must begin at 0 and rise, got '{text}'")
    if min(size for _, size in stages) < LEAST:
        raise argparse.ArgumentTypeError(f"at least {LEAST} pixels are needed, got '{text}'")
    if max(size for _, size in stages) > MOST:
        raise argparse.ArgumentTypeError(f"at most {MOST} pixels are possible, got '{text}'")
    return ImageSizes(stages)
