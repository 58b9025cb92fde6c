"""The networks: a body for features of photographs, and a head with one output per finding.

DenseNet-121 (Huang et al., arXiv:1608.06993), ResNet-50 (He et al., arXiv:1512.03385) and VGG-16
(Simonyan and Zisserman, arXiv:1409.1556) are the networks of Keras. MobileNetV2 (Sandler et al.,
arXiv:1801.04381, table 2) follows torchvision, so that weights of torchvision fit: Keras pads
convolutions of stride 2 at the opposite edge, and uses another epsilon. A head averages the
features over the image; the head of VGG-16 has the two layers of 4,096 features of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras import layers

POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet: red, green, blue
SCALE = [1 / (255 * std) for std in STD]
OFFSET = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
CAFFE_OFFSET = [-103.939, -116.779, -123.68]  # blue, green, red
CLASSIFIER = "findings"
MOBILENET_BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""For each group of blocks: expansion factor, output channels, number of blocks, first stride."""
MOBILENET_FEATURES = 1280


@dataclass(frozen=True)
class Network:
    """A network in two parts.

    Attributes:
        name: name of the body, a key of `BODIES`.
        body: model from images of values 0..255, (n, H, W, 3), to features, (n, h, w, C).
        head: model from features to logits, (n, outputs), in fp32.
    """

    name: str
    body: keras.Model
    head: keras.Model

    def logits(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Return the logits of images (n, H, W, 1 or 3) with values 0..255."""
        return self.head(self.features(images, training=training), training=training)

    def features(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        """Return the features (n, h, w, C) of images; grey values are copied to three channels."""
        values = tf.cast(images, tf.float32)
        if values.shape[-1] == 1:
            values = tf.repeat(values, 3, -1)
        return self.body(values, training=training)


def _normalize(images: Any) -> Any:
    """Return normalized images, as torchvision's networks and Keras's DenseNet require."""
    return layers.Rescaling(SCALE, OFFSET, name="normalized")(images)


def _normalize_caffe(images: Any) -> Any:
    """Return images in the order BGR minus their mean, as Keras's ResNet and VGG require."""
    turned = layers.Lambda(lambda found: found[..., ::-1], lambda shape: shape,
                           name="blue_green_red")(images)
    return layers.Rescaling(1.0, CAFFE_OFFSET, name="centred")(turned)


def _keras_body(build: Any, prepared: Any) -> Any:
    def body(images: Any) -> Any:
        return build(include_top=False, weights=None, input_tensor=prepared(images)).output

    return body


def _small(images: Any) -> Any:
    """Return the symbolic features (n, h, w, 32) of `images` after three convolutions.

    This network is for small images and tests.
    """
    found = _normalize(images)
    for number, features in enumerate((8, 16, 32)):
        found = layers.Conv2D(features, 3, 2, "same", use_bias=False, name=f"small.{number}")(found)
        found = layers.BatchNormalization(momentum=0.9, name=f"small.{number}.bn")(found)
        found = layers.ReLU()(found)
    return found


def mobilenet_v2(images: Any) -> Any:
    """Return the symbolic features (n, h, w, 1280) of normalized `images` (n, H, W, 3).

    The layers have the same names as in torchvision.
    """
    found = _convolution(images, "features.0", 32, 3, 2)
    number = 1
    for expansion, features, count, stride in MOBILENET_BLOCKS:
        for repetition in range(count):
            found = _block(found, f"features.{number}.conv", expansion, features,
                           1 if repetition else stride)
            number += 1
    return _convolution(found, f"features.{number}", MOBILENET_FEATURES, 1, 1)


def _block(found: Any, name: str, expansion: int, features: int, stride: int) -> Any:
    """Return the outputs of an inverted residual: expansion, depthwise convolution, projection."""
    given = found
    parts = 0
    if expansion != 1:
        found = _convolution(found, f"{name}.0", expansion * given.shape[-1], 1, 1)
        parts = 1
    found = _convolution(found, f"{name}.{parts}", None, 3, stride)
    found = layers.Conv2D(features, 1, use_bias=False, name=f"{name}.{parts + 1}")(found)
    found = _normalized(found, f"{name}.{parts + 2}")
    return layers.add([given, found]) if given.shape == found.shape else found


def _convolution(found: Any, name: str, features: int | None, side: int, stride: int) -> Any:
    """Return the outputs of a convolution, batch normalization and ReLU6.

    `features` is the number of output channels, or None for a depthwise convolution.
    """
    if side > 1:
        found = layers.ZeroPadding2D(side // 2)(found)
    how = {"strides": stride, "use_bias": False, "name": f"{name}.0"}
    layer = layers.DepthwiseConv2D(side, **how) if features is None else layers.Conv2D(
        features, side, **how
    )
    return layers.ReLU(6)(_normalized(layer(found), f"{name}.1"))


def _normalized(found: Any, name: str) -> Any:
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(found)


BODIES = {
    "densenet121": _keras_body(keras.applications.DenseNet121, _normalize),
    "resnet50": _keras_body(keras.applications.ResNet50, _normalize_caffe),
    "vgg16": _keras_body(keras.applications.VGG16, _normalize_caffe),
    "mobilenetv2": lambda images: mobilenet_v2(_normalize(images)),
    "small": _small,
}


def build(name: str, size: int, outputs: int, precision: str) -> Network:
    """Return the network `name` for images of `size` pixels, with random weights.

    Args:
        name: a key of `BODIES`.
        size: side of the images, in pixels.
        outputs: number of outputs, one for each finding.
        precision: a key of `POLICIES`; weights and logits are always fp32.
    """
    keras.mixed_precision.set_global_policy(POLICIES[precision])
    images = keras.Input((size, size, 3))
    features = BODIES[name](images)
    body = fuse_batch_normalization(keras.Model(images, features))
    given = keras.Input(features.shape[1:], dtype=features.dtype)
    if name == "vgg16":
        found = layers.Flatten(name="flatten")(given)
        found = layers.Dense(4096, "relu", name="fc1")(found)
        found = layers.Dense(4096, "relu", name="fc2")(found)
    else:
        found = layers.GlobalAveragePooling2D(name="mean")(given)
    logits = layers.Dense(outputs, dtype="float32", name=CLASSIFIER)(found)
    return Network(name, body, keras.Model(given, logits))


class FusedBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras's batch normalization of features (n, h, w, C) as one operation.

    Batch normalization in Keras 3 has a dozen operations that each read and write all features.
    TensorFlow's single operation has the same result.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return normalized features; in a training, use the statistics of the batch."""
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
            # The operation divides by count - 1, and Keras divides by count.
            self._move(self.moving_mean, mean)
            self._move(self.moving_variance, variance * (count - 1) / count)
        return found

    def _move(self, kept: Any, new: Any) -> None:
        kept.assign(kept * self.momentum + new * (1 - self.momentum))


def fuse_batch_normalization(model: keras.Model) -> keras.Model:
    """Return a copy of the model with fused batch normalizations."""

    def layer(one: Any) -> Any:
        if type(one) is keras.layers.BatchNormalization:
            return FusedBatchNormalization.from_config(one.get_config())
        return one

    return keras.models.clone_model(model, clone_function=layer)
