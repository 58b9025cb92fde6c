"""The command `pretrain`: train a network on ImageNet for a later fine-tuning by `train --initial`.

The training is that of `train`, but images with one class each have the softmax cross-entropy as
loss and top-1 as score. Training images are random crops of any size, evaluation images centre
crops, and the learning rate drops in steps (arXiv:1706.02677, section 5.1). The published run had
90 epochs in batches of 8,192 on 512 ranks: PRACE Best Practice Guide - Deep Learning (2019),
section 6.4, which names no augmentation and no schedule. Its 14,075 steps are
90 x 1,281,167 / 8,192; an epoch here ends with the remaining images, so that it has 157 steps, and
the training 14,130. The guide recommends to fine-tune not from the last checkpoint, but from one
whose learning rate was still high, and to continue with that rate
(`train --initial FILE --initial-rate`).
"""

from __future__ import annotations

from chexnet import train
from chexnet.settings import PretrainSettings


def main(settings: PretrainSettings) -> None:
    """Train as `settings` specify.

    Raises:
        AppError: with the exit code of the app contract.
    """
    train.main(settings)
