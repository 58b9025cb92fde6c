"""Batch normalization as one operation, forwards and backwards.

Keras 3 composes it of a dozen operations that each read and write all features; TensorFlow has one
for it, which computes the same.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class FusedBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras's layer, of features (n, h, w, C), with its weights and its statistics."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return normalized features; in training, by their own mean and variance."""
        learning = bool(training and self.trainable)
        nothing = tf.zeros((0,))
        found, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=tf.convert_to_tensor(self.gamma), offset=tf.convert_to_tensor(self.beta),
            mean=nothing if learning else tf.convert_to_tensor(self.moving_mean),
            variance=nothing if learning else tf.convert_to_tensor(self.moving_variance),
            epsilon=self.epsilon, is_training=learning,
        )
        if learning:
            count = tf.cast(tf.size(inputs) / tf.size(mean), tf.float32)
            # The operation divides by count - 1, Keras by count.
            self._follow(self.moving_mean, mean)
            self._follow(self.moving_variance, variance * (count - 1) / count)
        return found

    def _follow(self, kept: Any, new: Any) -> None:
        kept.assign(kept * self.momentum + new * (1 - self.momentum))


def fused(model: keras.Model) -> keras.Model:
    """Return the model with its batch normalizations fused; all other layers are its own."""

    def layer(one: Any) -> Any:
        if type(one) is keras.layers.BatchNormalization:
            return FusedBatchNormalization.from_config(one.get_config())
        return one

    return keras.models.clone_model(model, clone_function=layer)
