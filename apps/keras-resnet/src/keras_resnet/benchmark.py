"""The command `benchmark`: rates of the networks of `keras.applications` with random images."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import tensorflow as tf
import tf_keras as keras

from keras_resnet import network, operations
from keras_resnet.network import Classifier
from keras_resnet.settings import ZOO, BenchmarkSettings
from trainkit.exits import ArgumentError
from trainkit.tensorflow import determinism
from trainkit.tensorflow.start import start
from trainkit.zoo import report
from trainkit.zoo.measure import Network, Step

CLASSES = 1000
SEED = 17
SMALL_SIZE = 32


def main(settings: BenchmarkSettings) -> None:
    """Measure the networks, and print one table.

    Raises:
        ArgumentError: a network does not exist, or could not be measured.
    """
    names = settings.models or ZOO
    for name in names:
        network.check_name(name)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of the child processes: errors only
    report.main(settings, __name__, names)


def open_framework(settings: BenchmarkSettings) -> TensorFlow:
    """Return the framework with the device and precision of `settings`."""
    return TensorFlow(settings)


class TensorFlow:
    """The networks and matrix products of TensorFlow on one device.

    Args:
        settings: the options.
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (tf.errors.OpError,)

    def __init__(self, settings: BenchmarkSettings) -> None:
        determinism.prepare(SEED, exact=False, threads=settings.threads)
        device = start("single", device=settings.device).device
        network.set_precision(settings.precision)
        self._settings = settings
        self.kind = "gpu" if device.startswith("GPU") else "cpu"
        where = f"CPU with {settings.threads} threads" if self.kind == "cpu" else _gpu()
        self.title = f"TensorFlow {tf.__version__}, {where}, {settings.precision}"

    def product(self, order: int) -> Step:
        """Return a function that multiplies two n x n matrices in the precision of the networks.

        `order` is n.
        """
        kind = keras.mixed_precision.global_policy().compute_dtype
        left, right = (tf.cast(tf.random.normal((order, order)), kind) for _ in range(2))
        multiply = tf.function(lambda: tf.matmul(left, right))
        return lambda: finished(multiply())

    def network(self, name: str) -> Network:
        """Build the network `name`; return it with functions for an inference and a training step.

        Raises:
            ArgumentError: the network does not accept images of this size.
        """
        model = build(name, self._settings.size)
        model.compile(keras.optimizers.SGD(0.01, 0.9))
        batch, size = self._settings.batch_size, model.input_shape[1]
        images = tf.random.normal((batch, size, size, 3))
        labels = tf.random.uniform((batch,), maxval=CLASSES, dtype=tf.int32)
        weights = tf.fill((batch,), 1 / batch)

        forward = tf.function(lambda images: model(images, training=False))
        train = tf.function(lambda *data: model.train_step(data))
        one = forward.get_concrete_function(tf.TensorSpec((1, size, size, 3)))
        return Network(
            sum(weight.shape.num_elements() for weight in model.trainable_variables), size,
            operations.count(one), lambda: finished(forward(images)),
            lambda: finished(train(images, labels, weights)),
        )

    def is_out_of_memory(self, error: Exception) -> bool:
        """Return whether `error` was raised because of too little memory."""
        return isinstance(error, tf.errors.ResourceExhaustedError)


def build(name: str, size: int | None) -> Classifier:
    """Return the network `name` with its own last layers, as published, and random weights.

    Args:
        name: a key of `network.names()`, or `network.SMALL`.
        size: side of the images in pixels, or None for the default size of the network.

    Raises:
        ArgumentError: the network does not accept images of this size.
    """
    if name == network.SMALL:
        return network.network(name, size or SMALL_SIZE, CLASSES)
    shape = None if size is None else (size, size, 3)
    make = getattr(network.names()[name], name)
    try:
        body = make(
            weights=None, input_shape=shape, classes=CLASSES, classifier_activation=None
        )
    except ValueError as error:
        raise ArgumentError(
            f"--size {size}: {name} does not accept such images: {str(error).splitlines()[0]}",
            code="argument-invalid",
        ) from error
    logits = keras.layers.Activation("linear", dtype="float32")(body.output)
    return Classifier(body.input, logits)


def finished(result: Any) -> Any:
    """Wait until the device has computed `result`, and return it."""
    if tf.config.list_logical_devices("GPU"):
        tf.test.experimental.sync_devices()
    return result


def _gpu() -> str:
    """Return the name of the GPU that TensorFlow uses."""
    (gpu,) = tf.config.get_visible_devices("GPU")
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", "GPU"))
