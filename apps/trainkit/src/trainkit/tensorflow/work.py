"""Describe the work of a Keras network, layer by layer, for predictions of `trimaran plan`."""

from __future__ import annotations

import math
from typing import Any

INPUT = "InputLayer"


def layers(model: Any) -> list[list[Any]]:
    """Return the layers of a functional model of Keras 2 or Keras 3, in the order of its layers.

    The operations of a convolution or dense layer are two (a multiplication and an addition) for
    each value of its output and each weight that contributes to it. Operations of other layers are
    few in comparison, and are not counted, as usual.

    Args:
        model: the model; the layers of models that it contains take their places.

    Returns:
        For each layer but the inputs: name, sizes of its trained tensors, operations of the forward
        pass for one sample, and number of output values.
    """
    found: list[list[Any]] = []
    for layer in model.layers:
        if hasattr(layer, "layers"):
            found += layers(layer)
        elif type(layer).__name__ != INPUT:
            outputs = math.prod(layer.output.shape[1:])
            sizes = [math.prod(one.shape) for one in layer.trainable_weights]
            found.append([layer.name, sizes, 2 * outputs * _products(layer), outputs])
    return found


def _products(layer: Any) -> int:
    """Return the products that make one value of the output of a layer.

    Raises:
        TypeError: the layer has a kernel of another kind than convolutions and dense layers.
    """
    kind = type(layer).__name__
    if kind in ("Conv2D", "Dense"):
        return math.prod(layer.kernel.shape[:-1])
    if kind == "DepthwiseConv2D":
        return math.prod(layer.kernel.shape[:2])
    if any(len(one.shape) > 1 for one in layer.trainable_weights):
        raise TypeError(f"the operations of a layer {kind} are unknown")
    return 0
