"""Tests of the fused batch normalization, which must compute the same as Keras's layer."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet.network import FusedBatchNormalization, fuse_batch_normalization

SHAPE = (3, 4, 5, 6)


def both() -> tuple[keras.layers.Layer, keras.layers.Layer]:
    """Return Keras's layer and the fused layer, with equal weights and statistics."""
    draw = np.random.default_rng(0)
    values = [draw.uniform(0.5, 2, SHAPE[-1]).astype(np.float32) for _ in range(4)]
    made = []
    for kind in (keras.layers.BatchNormalization, FusedBatchNormalization):
        layer = kind(momentum=0.9, epsilon=1.001e-5)
        layer.build(SHAPE)
        layer.set_weights(values)
        made.append(layer)
    return made[0], made[1]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("trainable", [True, False])
def test_outputs_slopes_and_statistics_are_those_of_keras(training: bool, trainable: bool) -> None:
    keras.mixed_precision.set_global_policy("float32")
    images = tf.constant(np.random.default_rng(1).normal(2, 3, SHAPE).astype(np.float32))
    found = []
    for layer in both():
        layer.trainable = trainable
        with tf.GradientTape() as tape:
            tape.watch(images)
            made = layer(images, training=training)
            loss = tf.reduce_sum(made**3)
        slopes = tape.gradient(loss, [images, layer.gamma.value, layer.beta.value])
        found.append([made, *slopes, layer.moving_mean, layer.moving_variance])
    for theirs, ours in zip(*found, strict=True):
        scale = float(np.abs(np.asarray(theirs)).max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * scale)


def test_only_batch_normalization_is_another_layer() -> None:
    images = keras.Input((8, 8, 3))
    features = keras.layers.Conv2D(4, 3, name="c")(images)
    model = keras.Model(images, keras.layers.BatchNormalization(name="n")(features))
    found = fuse_batch_normalization(model)
    assert found.get_layer("c") is model.get_layer("c")
    assert isinstance(found.get_layer("n"), FusedBatchNormalization)
    assert [one.shape for one in found.variables] == [one.shape for one in model.variables]
