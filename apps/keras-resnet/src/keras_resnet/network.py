"""The networks of `keras.applications`, and the training step.

Images enter a network with values 0..255; its first layer is the preprocessing with which Keras
published the network's weights, such as a scaling to -1..1 for ResNet50V2 (He et al.,
arXiv:1603.05027).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras

from keras_resnet.settings import TrainSettings
from trainkit import metrics
from trainkit.exits import ArgumentError
from trainkit.tensorflow.keras_fit import STOPPING

POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16"}
SMALL = "Small"
"""Name of a network of three convolutions, for small images and tests."""

CORRECT = "train_accuracy"
"""Key of the number of images that were classified correctly in a step."""


def names() -> dict[str, Any]:
    """Return network name -> the module of `keras.applications` that defines it."""
    found: dict[str, Any] = {}
    for module in vars(keras.applications).values():
        if hasattr(module, "preprocess_input"):
            found |= {name: module for name in vars(module) if name[:1].isupper()}
    return found


def check_name(name: str) -> None:
    """Raise ArgumentError if `keras.applications` has no network `name`.

    Raises:
        ArgumentError: the name is unknown; the message contains the most similar names.
    """
    known = [SMALL, *sorted(names())]
    if name not in known:
        lower = {one.lower(): one for one in known}
        near = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, 3, 0.4)]
        raise ArgumentError(
            f"--model {name}: keras.applications has no such network; the most similar names are "
            + ", ".join(near or known),
            code="argument-invalid",
        )


def build(settings: TrainSettings, classes: Sequence[str]) -> Classifier:
    """Return the network that `settings` specify, with random weights.

    Raises:
        ArgumentError: the network does not accept images of this size.
    """
    set_precision(settings.precision)
    return network(settings.model, settings.size, len(classes))


def set_precision(name: str) -> None:
    """Set the precision in which Keras computes, a key of `POLICIES`, and disable TF32."""
    keras.mixed_precision.set_global_policy(POLICIES[name])
    tf.config.experimental.enable_tensor_float_32_execution(False)


def network(name: str, size: int, classes: int) -> Classifier:
    """Return the network `name` with random weights; its weights and logits are fp32.

    Args:
        name: a key of `names()`, or `SMALL`.
        size: side of the images, in pixels.
        classes: number of outputs.

    Raises:
        ArgumentError: the network does not accept images of this size.
    """
    images = keras.Input((size, size, 3))
    if name == SMALL:
        return Classifier(images, _small(images, classes))
    module = names()[name]
    values = keras.layers.Lambda(module.preprocess_input, name="preprocessing")(images)
    try:
        body = getattr(module, name)(include_top=False, weights=None, input_shape=(size, size, 3))
    except ValueError as error:
        raise ArgumentError(
            f"--model {name} --size {size}: {str(error).splitlines()[0]}", code="argument-invalid"
        ) from error
    features = keras.layers.GlobalAveragePooling2D()(body(values))
    return Classifier(images, keras.layers.Dense(classes, dtype="float32")(features))


def _small(images: Any, classes: int) -> Any:
    values = keras.layers.Rescaling(1 / 127.5, -1)(images)
    for features in (8, 16, 32):
        values = keras.layers.Conv2D(features, 3, 2, "same", use_bias=False)(values)
        values = keras.layers.BatchNormalization(momentum=0.9)(values)
        values = keras.layers.ReLU()(values)
    features = keras.layers.GlobalAveragePooling2D()(values)
    return keras.layers.Dense(classes, dtype="float32")(features)


class Classifier(keras.Model):  # type: ignore[misc]
    """A network from images (n, H, W, 3) with values 0..255 to logits (n, classes).

    The training step is the only part of `model.fit` that this app defines. It differs from the
    training step of Keras in two points. The loss is a sum over images, each with the weight
    1 / global batch: the sum of the gradients of all replicas is the gradient of the mean loss,
    also if the last batch of an epoch is smaller. And a batch may be divided into micro-batches.

    Attributes:
        accumulation: number of micro-batches per step and replica.
        stopping: function that returns a number, 1 after a signal that requested a stop. It is a
            function, because Keras would save a variable with the weights.
    """

    accumulation: int = 1
    stopping: Callable[[], Any] = staticmethod(lambda: 0.0)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Make one update with the images of this replica.

        Args:
            data: images (n, H, W, 3), classes (n,), and weights (n,) of the images.

        Returns:
            A dictionary with the sum of the losses of this replica's images, the number of these
            images that were classified correctly, and, with the key `STOPPING`, the value of
            `stopping`: 1 after a signal that requested a stop.
        """
        gradients, results = self.gradients(data)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return results

    def gradients(self, data: Any) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the gradients of the images of this replica, and the results of `train_step`."""
        sums = [tf.zeros_like(variable) for variable in self.trainable_variables]
        loss = correct = tf.zeros(())
        for images, labels, weights in self._parts(*data):
            with tf.GradientTape() as tape:
                logits = self(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                weighted = tf.reduce_sum(losses * weights)
            # Horovod's optimizer adds the gradients of all ranks here, others in apply_gradients.
            pairs = self.optimizer.compute_gradients(weighted, self.trainable_variables, tape)
            sums = [before + now for before, (now, _) in zip(sums, pairs, strict=True)]
            loss += tf.reduce_sum(losses)
            correct += hits(labels, logits)
        stopping = tf.convert_to_tensor(self.stopping())
        return sums, {metrics.TRAIN_LOSS: loss, CORRECT: correct, STOPPING: stopping}

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Return the summed loss, the number of hits and the number of images of this replica.

        A hit is an image that is classified correctly. The keys are `evaluation.KEYS`.
        """
        images, labels = data
        logits = self(images, training=False)
        real = tf.cast(labels >= 0, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return {
            "loss": tf.reduce_sum(losses * real), "correct": hits(labels, logits),
            "images": tf.reduce_sum(real),
        }

    def _parts(self, *data: tf.Tensor) -> Iterator[tuple[tf.Tensor, ...]]:
        """Yield the micro-batches of a batch; the first ones may have one image more."""
        count, parts = tf.shape(data[0])[0], self.accumulation
        for part in range(parts):
            first, end = (
                number * (count // parts) + tf.minimum(number, count % parts)
                for number in (part, part + 1)
            )
            yield tuple(values[first:end] for values in data)


def hits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the number of images whose largest logit belongs to their class."""
    best = tf.argmax(logits, -1, output_type=labels.dtype)
    return tf.reduce_sum(tf.cast(best == labels, tf.float32))
