"""Train a network on ImageNet, whose body `train --initial` then begins with.

The same training: images with one class each are learned by the softmax cross-entropy, and judged
by their top-1. They are seen as photographs are: random parts of any size in the training, the
middle where they are judged; and the rate falls in steps (arXiv:1706.02677, section 5.1). The
published run took 90 epochs in batches of 8,192 on 512 ranks: PRACE Best Practice Guide - Deep
Learning (2019), section 6.4, which names no augmentation and no schedule. Its 14,075 steps are
90 x 1,281,167 / 8,192; an epoch here ends with the images that are left, so it has 157 steps, and
all have 14,130. Its rule: begin the transfer not with the last checkpoint, but with one whose
learning rate was still high, and go on with that rate (`train --initial FILE --initial-rate`).
"""

from __future__ import annotations

from chexnet import train
from chexnet.settings import PretrainSettings


def main(settings: PretrainSettings) -> None:
    """Train as `settings` say.

    Raises:
        AppError: with the exit code of the app contract.
    """
    train.main(settings)
