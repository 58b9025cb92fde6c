"""Count the operations of a network from its graph."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")


def count(function: Any) -> int:
    """Return the operations of the convolutions and matrix products in a traced function.

    A multiplication and an addition are two operations. Other operations, such as those of
    batch normalization and pooling, are few in comparison, and are not counted, as usual.

    Args:
        function: a concrete `tf.function`, all shapes of which are known.
    """
    return sum(_count(one) for one in function.graph.get_operations())


def _count(operation: tf.Operation) -> int:
    if operation.type == "MatMul":
        first, result = operation.inputs[0].shape, operation.outputs[0].shape
        inner = first[0] if operation.get_attr("transpose_a") else first[1]
        return int(2 * result.num_elements() * inner)
    if operation.type in CONVOLUTIONS:
        filters = operation.inputs[1].shape  # (height, width, inputs, outputs or multiplier)
        # A value of a depthwise convolution is a sum over one input channel only.
        inner = math.prod(filters[:3] if operation.type == "Conv2D" else filters[:2])
        return int(2 * operation.outputs[0].shape.num_elements() * inner)
    return 0
