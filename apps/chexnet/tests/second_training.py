"""A second implementation of the network `small`, its losses and optimizers, in double precision.

It follows the papers and the documentation of Keras. It uses operations and gradients of
TensorFlow, and does not call the app.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of ImageNet
EPSILON, MOMENTUM = 1e-3, 0.9  # of batch normalization
LAYERS = range(3)
Arrays = dict[str, np.ndarray]
"""Name of a weight, or of a running statistic of batch normalization -> its values."""
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Function from logits and labels to the loss of each image."""


def weights_of(found: Any) -> Arrays:
    """Return copies of the weights and batch normalization statistics of a network of the app."""
    values = {}
    for at in LAYERS:
        values[f"kernel.{at}"] = found.body.get_layer(f"small.{at}").kernel
        normal = found.body.get_layer(f"small.{at}.bn")
        values |= {f"gamma.{at}": normal.gamma, f"beta.{at}": normal.beta,
                   f"mean.{at}": normal.moving_mean, f"variance.{at}": normal.moving_variance}
    last = found.head.get_layer("findings")
    values |= {"kernel.head": last.kernel, "bias.head": last.bias}
    return {name: one.numpy().astype(float) for name, one in values.items()}


def features(values: Mapping[str, Any], images: Any, *, training: bool) -> tuple[tf.Tensor, Arrays]:
    """Return the features of images of 0..255, and the new batch normalization statistics."""
    found = tf.cast(images, tf.float64) / 255
    if found.shape[-1] == 1:
        found = tf.concat([found] * 3, -1)
    found, after = (found - MEAN) / STD, {}
    for at in LAYERS:
        found = tf.nn.conv2d(found, values[f"kernel.{at}"], 2, "SAME")
        mean, variance = values[f"mean.{at}"], values[f"variance.{at}"]
        if training:
            own = tf.reduce_mean(found, (0, 1, 2))
            spread = tf.reduce_mean((found - own) ** 2, (0, 1, 2))
            after[f"mean.{at}"] = (MOMENTUM * mean + (1 - MOMENTUM) * own).numpy()
            after[f"variance.{at}"] = (MOMENTUM * variance + (1 - MOMENTUM) * spread).numpy()
            mean, variance = own, spread
        found = (found - mean) / tf.sqrt(variance + EPSILON)
        found = tf.maximum(found * values[f"gamma.{at}"] + values[f"beta.{at}"], 0)
    return found, after


def logits(values: Mapping[str, Any], images: Any) -> np.ndarray:
    """Return the logits of images with values 0..255, normalized by the stored statistics."""
    found, _ = features(values, images, training=False)
    return np.asarray(_head(values, found))


def _head(values: Mapping[str, Any], found: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(found, (1, 2)) @ values["kernel.head"] + values["bias.head"]


def of_findings(present: np.ndarray | None) -> Loss:
    """Return CheXNet's loss (arXiv:1711.05225, equation 1) as the mean over the findings.

    `present` is the fraction of training images with each finding. If it is None, all terms have
    the weight 1.
    """
    def loss(found: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        likely = 1 / (1 + tf.exp(-found))
        with_it, without = (1.0, 1.0) if present is None else (1 - present, present)
        each = with_it * labels * tf.math.log(likely) + (
            without * (1 - labels) * tf.math.log(1 - likely)
        )
        return -tf.reduce_mean(each, 1)

    return loss


def of_classes(found: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the softmax cross-entropy (n,) of images that have one class each."""
    likely = tf.exp(found) / tf.reduce_sum(tf.exp(found), 1, keepdims=True)
    return -tf.math.log(tf.reduce_sum(likely * labels, 1))


def gradients(
    values: Arrays, images: Any, labels: Any, loss: Loss, *, training: bool
) -> tuple[np.ndarray, Arrays, Arrays]:
    """Return the loss of each image, the gradients of their sum, and the new running statistics."""
    given = {name: tf.constant(value) for name, value in values.items()}
    learned = [name for name in given if not name.startswith(("mean", "variance"))]
    with tf.GradientTape() as tape:
        tape.watch(list(given.values()))
        found, after = features(given, images, training=training)
        each = loss(_head(given, found), tf.cast(labels, tf.float64))
        total = tf.reduce_sum(each)
    found = tape.gradient(total, [given[name] for name in learned])
    slopes = {name: one.numpy() for name, one in zip(learned, found, strict=True)}
    return each.numpy(), slopes, after


class Optimizer:
    """SGD with momentum 0.9, or Adam with betas 0.9 and 0.999 and with Keras's epsilon, 1e-7.

    The weight decay is decoupled. It applies only to the weights of convolutions and dense layers,
    which have names that begin with `kernel`.
    """

    def __init__(self, kind: str, decay: float = 0.0) -> None:
        self._kind, self._decay, self._made = kind, decay, 0
        self._first: dict[str, Any] = {}
        self._second: dict[str, Any] = {}

    def step(self, values: Arrays, slopes: Mapping[str, np.ndarray], rate: float) -> None:
        """Update each of `values` that has a gradient in `slopes`; `rate` is the learning rate."""
        self._made += 1
        for name, slope in slopes.items():
            if name.startswith("kernel"):
                values[name] = values[name] * (1 - rate * self._decay)
            values[name] = values[name] - self._moved(name, slope, rate)

    def _moved(self, name: str, slope: np.ndarray, rate: float) -> Any:
        first, second = self._first.get(name, 0.0), self._second.get(name, 0.0)
        if self._kind == "sgd":  # the velocity has the rates that it was gained with
            self._first[name] = 0.9 * first + rate * slope
            return self._first[name]
        self._first[name] = 0.9 * first + 0.1 * slope
        self._second[name] = 0.999 * second + 0.001 * slope**2
        mean = self._first[name] / (1 - 0.9**self._made)
        square = self._second[name] / (1 - 0.999**self._made)
        return rate * mean / (np.sqrt(square) + 1e-7 / np.sqrt(1 - 0.999**self._made))


class Second:
    """A second implementation of the training of the network `small`, step by step.

    Attributes:
        values: weights and statistics.
    """

    def __init__(self, values: Arrays, loss: Loss, kind: str, decay: float = 0.0) -> None:
        self.values, self._loss = dict(values), loss
        self._head, self._body = Optimizer(kind, decay), Optimizer(kind, decay)

    def step(
        self, images: np.ndarray, labels: np.ndarray, *, head: float, body: float | None,
        statistics: bool = True, parts: int = 1,
    ) -> float:
        """Make an update with the rates `head` and `body`, and return the mean loss.

        If `body` is None, the body is frozen.
        """
        total, lost = dict[str, np.ndarray](), 0.0
        pairs = zip(np.array_split(images, parts), np.array_split(labels, parts), strict=True)
        for some, theirs in pairs:
            each, slopes, after = gradients(
                self.values, some, theirs, self._loss, training=statistics and body is not None
            )
            self.values |= after
            total = {name: total.get(name, 0.0) + one for name, one in slopes.items()}
            lost += each.sum()
        means = {name: one / len(images) for name, one in total.items()}
        last = {name: one for name, one in means.items() if name.endswith(".head")}
        self._head.step(self.values, last, head)
        if body is not None:
            rest = {name: one for name, one in means.items() if name not in last}
            self._body.step(self.values, rest, body)
        return lost / len(images)


def close(ours: Arrays, theirs: Arrays, first: Arrays, names: Sequence[str] = ()) -> None:
    """Assert that the arrays `ours` and `theirs` are nearly equal.

    The difference is at most 1 percent of the largest change of `theirs` from the initial values
    in `first`, plus 2e-6.
    """
    assert ours.keys() == theirs.keys()
    for name in names or ours:
        moved = np.abs(theirs[name] - first[name]).max()
        assert np.abs(ours[name] - theirs[name]).max() <= 0.01 * moved + 2e-6, name
