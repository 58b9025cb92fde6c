"""Tests of the counted operations of Keras networks, which `trimaran plan` reads from work.json."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from keras import layers

from trainkit.tensorflow import work


def described(*parts: Any, size: int = 8, channels: int = 3) -> list[list[Any]]:
    return work.layers(keras.Sequential([keras.Input((size, size, channels)), *parts]))


def test_layers_are_counted_as_by_hand() -> None:
    (convolution, normal, flat, dense) = described(
        layers.Conv2D(4, 3, 2, "same", name="c"), layers.BatchNormalization(name="n"),
        layers.Flatten(name="f"), layers.Dense(5, name="d"))
    assert convolution == ["c", [3 * 3 * 3 * 4, 4], 2 * 4 * 4 * 4 * 27, 4 * 4 * 4]
    assert normal == ["n", [4, 4], 0, 64]
    assert flat == ["f", [], 0, 64]
    assert dense == ["d", [64 * 5, 5], 2 * 64 * 5, 5]


def test_a_depthwise_convolution_has_a_kernel_for_each_feature() -> None:
    ((_, sizes, flops, _),) = described(
        layers.DepthwiseConv2D(3, padding="same", use_bias=False), channels=6)
    assert sizes == [9 * 6]
    assert flops == 2 * 8 * 8 * 6 * 9


def test_layers_of_a_model_within_a_model_take_its_place() -> None:
    inner = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 1, name="inner")])
    given = keras.Input((8, 8, 3))
    outer = keras.Model(given, layers.ReLU(name="outer")(inner(given)))
    assert [layer[0] for layer in work.layers(outer)] == ["inner", "outer"]


def test_a_layer_whose_operations_are_unknown_is_refused() -> None:
    with pytest.raises(TypeError, match="Conv2DTranspose"):
        described(layers.Conv2DTranspose(4, 3))
