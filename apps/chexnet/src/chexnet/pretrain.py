"""The command `pretrain`: train a network on ImageNet for a later fine-tuning by `train --initial`.

The training loop is the same as in `train`, but each image has one class: the loss is the softmax
cross-entropy, and the score is the top-1 accuracy. Training images are random crops of different
sizes, evaluation images are centre crops, and the learning rate drops in steps (arXiv:1706.02677,
section 5.1). The published run had 90 epochs with a global batch of 8,192 on 512 ranks: PRACE Best
Practice Guide - Deep Learning (2019), section 6.4, which gives no augmentation and no schedule. The
published 14,075 steps are 90 x 1,281,167 / 8,192. In this app, the last batch of an epoch is
smaller, so that an epoch has 157 steps and the training has 14,130. The guide recommends to
fine-tune not from the last checkpoint, but from an earlier checkpoint with a high learning rate,
and to continue with that rate (`train --initial FILE --initial-rate`).
"""

from __future__ import annotations

from chexnet import train
from chexnet.settings import PretrainSettings


def main(settings: PretrainSettings) -> None:
    """Train as `settings` specify.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    train.main(settings)
