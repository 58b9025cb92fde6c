"""Tests of work.json: operations, weights and outputs of each layer, for `trimaran plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chexnet import network, work

FILE = Path(__file__).parents[1] / "work.json"


@pytest.mark.parametrize(("name", "size"), work.NETWORKS)
def test_the_file_has_the_layers_of_the_networks_as_they_are(name: str, size: int) -> None:
    assert json.loads(FILE.read_text())[f"{name}@{size}"] == work.describe(name, size)


def test_layers_are_counted_as_by_hand() -> None:
    """Weights, operations and outputs of the layers of the network `small` equal hand counts.

    It has three convolutions of stride 2 with 8, 16 and 32 features, and a dense layer.
    """
    found = {layer[0]: layer[1:] for layer in work.describe("small", 32)["layers"]}
    assert found["small.0"] == [[3 * 3 * 3 * 8], 2 * 16 * 16 * 8 * 27, 16 * 16 * 8]
    assert found["small.1"] == [[3 * 3 * 8 * 16], 2 * 8 * 8 * 16 * 72, 8 * 8 * 16]
    assert found["small.1.bn"] == [[16, 16], 0, 8 * 8 * 16]
    assert found["findings"] == [[32 * 14, 14], 2 * 32 * 14, 14]


def test_a_depthwise_convolution_has_a_kernel_for_each_feature() -> None:
    found = {layer[0]: layer[1:] for layer in work.describe("mobilenetv2", 64)["layers"]}
    assert found["features.1.conv.0.0"] == [[9 * 32], 2 * 32 * 32 * 32 * 9, 32 * 32 * 32]


def test_all_trained_parameters_are_described() -> None:
    found = network.build("mobilenetv2", 64, work.FINDINGS, "fp32")
    trained = [*found.body.trainable_weights, *found.head.trainable_weights]
    described = work.describe("mobilenetv2", 64)["layers"]
    assert sum(sum(layer[1]) for layer in described) == sum(one.shape.num_elements()
                                                           for one in trained)
