"""Tests of the operations of each layer, which `trimaran plan` reads from work.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from keras_resnet import network, work

FILE = Path(__file__).parents[1] / "work.json"


@pytest.mark.parametrize(("name", "size"), work.NETWORKS)
def test_the_file_has_the_layers_of_the_networks_as_they_are(name: str, size: int) -> None:
    assert json.loads(FILE.read_text())[f"{name}@{size}"] == work.describe(name, size)


def test_layers_of_models_within_the_model_are_counted() -> None:
    """The layers of the ResNet50V2 within the app's model have the expected operations.

    The first convolution has 7x7 kernels, the last one 1x1, with biases.
    """
    found = {layer[0]: layer[1:] for layer in work.describe("ResNet50V2", 64, 7)["layers"]}
    assert found["conv1_conv"] == [[7 * 7 * 3 * 64, 64], 2 * 32 * 32 * 64 * 147, 32 * 32 * 64]
    assert found["conv5_block3_3_conv"][1] == 2 * 2 * 2 * 2048 * 512
    assert found["dense"] == [[2048 * 7, 7], 2 * 2048 * 7, 7]


def test_all_trained_parameters_are_described() -> None:
    trained = network.network("ResNet50V2", 64, 7).trainable_weights
    described = work.describe("ResNet50V2", 64, 7)["layers"]
    assert sum(sum(layer[1]) for layer in described) == sum(
        int(np.prod(one.shape)) for one in trained)
