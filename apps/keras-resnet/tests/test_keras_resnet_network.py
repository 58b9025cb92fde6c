"""Tests of the networks, which are selected by their names, and of the training step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from keras_resnet import network
from keras_resnet.settings import TrainSettings
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import refused


def test_resnet50v2_has_the_published_number_of_parameters() -> None:
    """ResNet50V2 has 25,613,800 parameters with 1,000 classes.

    This is the number in the published lesson (a course exercise) that the README cites.
    """
    assert network.network("ResNet50V2", 128, 1000).count_params() == 25_613_800


@pytest.mark.parametrize(("name", "near"), [
    ("ResNet52V2", "ResNet50V2"), ("resnet152v2", "ResNet152V2"), ("Mobilenetv2", "MobileNetV2"),
    ("small", "Small"),
])
def test_a_wrong_name_is_refused_with_similar_ones(name: str, near: str) -> None:
    with refused(ArgumentError, "argument-invalid", name, near):
        network.check_name(name)


def test_every_network_has_its_own_preprocessing() -> None:
    names = network.names()
    assert {"ResNet50V2", "ResNet152V2", "VGG16", "InceptionV3", "NASNetMobile"} <= names.keys()
    pixels = np.full((1, 2, 2, 3), 255.0, np.float32)
    assert names["ResNet50V2"].preprocess_input(pixels.copy()).max() == 1
    assert names["VGG16"].preprocess_input(pixels.copy()).max() == pytest.approx(255 - 103.939)


def test_images_that_a_network_does_not_accept_are_refused() -> None:
    with refused(ArgumentError, "argument-invalid", "InceptionV3", "--size 32"):
        network.network("InceptionV3", 32, 10)


@pytest.mark.parametrize(("batch", "accumulation", "replicas", "samples"), [
    (8, 1, 3, 80), (8, 2, 8, 80), (8, 4, 1, 9), (8, 1, 4, 11),
])
def test_a_batch_that_cannot_be_divided_is_refused(
    batch: int, accumulation: int, replicas: int, samples: int
) -> None:
    settings = TrainSettings(batch_size=batch, accumulation=accumulation)
    named = batch if samples == 80 else replicas * accumulation
    with refused(ArgumentError, "ranks-uneven", named):
        settings.check_replicas(replicas, samples)


def batch_of(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    images = draw.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
    labels = draw.integers(0, 4, count).astype(np.int32)
    return images, labels, np.full(count, 1 / count, np.float32)


def step(accumulation: int, count: int = 7) -> tuple[dict[str, float], list[np.ndarray]]:
    """Return the results of one training step, and the weights after it."""
    keras.utils.set_random_seed(1)
    images = keras.Input((32, 32, 3))
    values = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(images))
    model = network.Classifier(images, keras.layers.Dense(4)(values))  # no batch statistics
    model.accumulation = accumulation
    model.compile(keras.optimizers.SGD(0.1))
    found = tf.function(model.train_step)(batch_of(count))
    return {key: float(value) for key, value in found.items()}, model.get_weights()


def test_micro_batches_give_the_same_step() -> None:
    whole, weights = step(1)
    parts, others = step(3)
    assert parts == {key: pytest.approx(value, rel=1e-5) for key, value in whole.items()}
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_step_is_the_gradient_of_the_mean_cross_entropy() -> None:
    """The weights after one step equal the weights after Keras's own training step."""
    _, weights = step(1)
    keras.utils.set_random_seed(1)
    images = keras.Input((32, 32, 3))
    values = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(images))
    model = keras.Model(images, keras.layers.Dense(4)(values))
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(True))
    pixels, labels, _ = batch_of(7)
    model.train_on_batch(pixels, labels)
    for one, other in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("count", "parts", "sizes"), [(7, 3, [3, 2, 2]), (3, 2, [2, 1])])
def test_micro_batches_are_the_shares_of_the_ranks(
    count: int, parts: int, sizes: list[int]
) -> None:
    images = keras.Input((32, 32, 3))
    model = network.Classifier(images, keras.layers.Flatten()(images))
    model.accumulation = parts
    numbers = tf.range(count)
    found = [part.numpy().tolist() for (part,) in model._parts(numbers)]
    assert [len(part) for part in found] == sizes
    assert [n for part in found for n in part] == list(range(count))


def test_an_evaluation_leaves_out_images_without_a_class() -> None:
    values = keras.Input((3,))
    model = network.Classifier(values, keras.layers.Activation("linear")(values))
    logits = np.array([[0, 2, 1], [5, 1, 0], [0, 0, 9]], np.float32)
    found = model.test_step((logits, np.array([1, 1, -1], np.int32)))
    assert float(found["images"]) == 2
    assert float(found["correct"]) == 1
    expected = [np.log(np.exp(row).sum()) - row[1] for row in logits[:2]]
    assert float(found["loss"]) == pytest.approx(sum(expected), rel=1e-5)
