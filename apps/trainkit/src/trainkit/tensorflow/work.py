"""Count the operations of a Keras network in each layer, for predictions of `trimaran plan`."""

from __future__ import annotations

import math
from typing import Any

INPUT = "InputLayer"


def layers(model: Any) -> list[list[Any]]:
    """Return a description of each layer of a functional Keras 2 or Keras 3 model, in order.

    A convolution or dense layer takes two operations (a multiplication and an addition) for each
    output value and each weight that contributes to the value. The few operations of other layers
    are not counted, as is usual.

    Args:
        model: the model; a model inside the model is replaced by its layers.

    Returns:
        For each layer except the input layers: name, number of elements of each trained tensor,
        operations of the forward pass for one sample, and number of output values.
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
    """Return the number of products that are summed for one output value of a layer.

    Raises:
        TypeError: the layer has a kernel, but is not a Conv2D, DepthwiseConv2D or Dense layer.
    """
    kind = type(layer).__name__
    if kind in ("Conv2D", "Dense"):
        return math.prod(layer.kernel.shape[:-1])
    if kind == "DepthwiseConv2D":
        return math.prod(layer.kernel.shape[:2])
    if any(len(one.shape) > 1 for one in layer.trainable_weights):
        raise TypeError(f"the operations of a layer {kind} are unknown")
    return 0
