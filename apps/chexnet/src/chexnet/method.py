"""The formulas: losses, learning rate, optimizer, loss scale, and decisions after a validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from chexnet.settings import TrainSettings
from trainkit import schedules


def finding_weights(labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the loss weights of each finding, for its presence and its absence: (2, findings).

    Rajpurkar et al., arXiv:1711.05225, section 2.1: presence is weighted by the fraction of
    images without the finding, absence by the fraction with the finding. If no image or every image
    has a finding, both of its weights are 1.

    Args:
        labels: 1 for each finding of an image, else 0, (n, findings).
    """
    present = labels.sum(0, dtype=np.float64) / max(1, len(labels))
    both = np.stack([1 - present, present])
    return np.where((present > 0) & (present < 1), both, 1).astype(np.float32)


def losses(logits: tf.Tensor, labels: tf.Tensor, weighting: tf.Tensor) -> tf.Tensor:
    """Return the binary cross-entropy of each image as the mean over the findings, (n,).

    Args:
        logits: (n, findings).
        labels: 1 or 0, (n, findings).
        weighting: weights of presence and absence of each finding, (2, findings).
    """
    each = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(each * (weighting[0] * labels + weighting[1] * (1 - labels)), 1)


def class_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the softmax cross-entropy (n,) of logits and one-hot labels (n, classes)."""
    return tf.nn.softmax_cross_entropy_with_logits(labels, logits)


DROPS = (1 / 3, 2 / 3, 8 / 9)
"""Fractions of a training after which the learning rate drops: 30, 60 and 80 of 90 epochs."""


def learning_rate(
    settings: TrainSettings, step: int, batch: int, factor: float, epoch: int = 0
) -> float:
    """Return the learning rate of the head.

    With `--base-batch`, the rate and the number of images in the warm-up are proportional to the
    global batch, so that the number of warm-up steps is constant: PRACE Best Practice Guide - Deep
    Learning (2019), section 6.4.

    Args:
        settings: options of the training.
        step: number of updates so far.
        batch: the global batch.
        factor: product of the drops caused by the validation.
        epoch: epoch of the step, from 0.
    """
    peak = settings.base_lr * factor
    if settings.schedule == "steps":
        after = [round(settings.epochs * part) for part in DROPS]
        peak = schedules.step_decay(epoch, after, peak)
    if settings.base_batch is not None:
        peak = schedules.linear_scaling(peak, batch, settings.base_batch)
    rise = -(-settings.warmup_images // (settings.base_batch or batch))
    return schedules.warmup(step + 1, rise, peak) if step < rise else peak


def optimizer(settings: TrainSettings) -> Any:
    """Return the optimizer that `settings` specify; the training sets its rate in each step."""
    decay = settings.weight_decay or None
    if settings.optimizer == "sgd":
        found = keras.optimizers.SGD(settings.base_lr, momentum=0.9, weight_decay=decay)
    else:
        found = keras.optimizers.Adam(settings.base_lr, weight_decay=decay)
    found.exclude_from_weight_decay(var_names=["gamma", "beta", "bias"])
    return found


class LossScale:
    """The factor of an fp16 loss, without which small gradients would become 0.

    It is halved if a gradient is not finite, and doubled after `EVERY` updates with finite
    gradients: Micikevicius et al., arXiv:1710.03740, section 3.2. In other precisions it is 1.
    """

    FIRST = 2.0**15
    EVERY = 2000  # consecutive steps with finite gradients

    def __init__(self, precision: str) -> None:
        self._on = precision == "fp16"
        self.scale = tf.Variable(self.FIRST if self._on else 1.0, trainable=False)
        self._good = tf.Variable(0, trainable=False)
        self.variables = [self.scale, self._good]

    def unscaled(self, gradients: list[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return the unscaled gradients, and whether all are finite; adjust the scale.

        Call this method in a `tf.function`.
        """
        if not self._on:
            return gradients, tf.constant(True)
        found = [gradient / self.scale for gradient in gradients]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(one)) for one in found])
        good = tf.where(finite, self._good + 1, 0)
        doubled = good >= self.EVERY
        factor = tf.where(finite, tf.where(doubled, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self._good.assign(tf.where(doubled, 0, good))
        return found, finite


class Plateau:
    """Decide from the validation AUROC when to drop the learning rate and when to end the training.

    Attributes:
        factor: factor of the learning rate, the product of all drops so far.
        stopped: whether the training must end.
    """

    def __init__(self, settings: TrainSettings) -> None:
        self._settings = settings
        self._best: float | None = None
        self._since_drop = self._since_best = 0
        self.factor, self.stopped = 1.0, False

    def update(self, auroc: float | None) -> None:
        """Update `stopped`, and the `factor` of the learning rate, after an evaluation.

        An undefined AUROC counts as an evaluation without improvement.
        """
        if auroc is not None and (self._best is None or auroc > self._best):
            self._best, self._since_drop, self._since_best = auroc, 0, 0
            return
        self._since_drop += 1
        self._since_best += 1
        if self._settings.patience and self._since_drop >= self._settings.patience:
            self.factor *= self._settings.drop
            self._since_drop = 0
        self.stopped = bool(self._settings.stop_after
                            and self._since_best >= self._settings.stop_after)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"best": self._best, "since_drop": self._since_drop,
                "since_best": self._since_best, "factor": self.factor, "stopped": self.stopped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self._best, self._since_drop = state["best"], state["since_drop"]
        self._since_best, self.factor = state["since_best"], state["factor"]
        self.stopped = state["stopped"]
