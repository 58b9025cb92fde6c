"""MobileNetV2, as torchvision has it, for the weights that were trained there.

Sandler et al., arXiv:1801.04381, table 2. Keras's own pads convolutions of stride 2 at another
edge and has another epsilon, and would compute something else with these weights. A layer is
called as in torchvision.
"""

from __future__ import annotations

from typing import Any

from keras import layers

BLOCKS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, features, repetitions, stride of the first one."""
LAST = 1280


def mobilenet_v2(images: Any) -> Any:
    """Return the features of normalized `images`, (n, H, W, 3): (n, h, w, 1280), symbolic both."""
    found = _convolution(images, "features.0", 32, 3, 2)
    number = 1
    for expansion, features, count, stride in BLOCKS:
        for repetition in range(count):
            found = _block(found, f"features.{number}.conv", expansion, features,
                           1 if repetition else stride)
            number += 1
    return _convolution(found, f"features.{number}", LAST, 1, 1)


def _block(found: Any, name: str, expansion: int, features: int, stride: int) -> Any:
    """Return an inverted residual: widened, filtered channel by channel, and narrowed again."""
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
    """Return a convolution (of each channel by itself without `features`), BN and ReLU6."""
    if side > 1:
        found = layers.ZeroPadding2D(side // 2)(found)
    how = {"strides": stride, "use_bias": False, "name": f"{name}.0"}
    layer = layers.DepthwiseConv2D(side, **how) if features is None else layers.Conv2D(
        features, side, **how
    )
    return layers.ReLU(6)(_normalized(layer(found), f"{name}.1"))


def _normalized(found: Any, name: str) -> Any:
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(found)
