"""Test work.json, the operations of each layer, from which `trimaran plan` predicts times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from language_model import method, work
from language_model.model import Decoder
from language_model.shapes import SHAPES

FILE = Path(__file__).parents[1] / "work.json"


@pytest.mark.parametrize(("name", "sequence"), work.NETWORKS)
def test_the_file_has_the_layers_of_the_networks_as_they_are(name: str, sequence: int) -> None:
    assert json.loads(FILE.read_text())[f"{name}@{sequence}"] == work.describe(name, sequence)


@pytest.mark.parametrize("name", ["gpt2-124m", "llama3-8b", "llama3-1b"])
def test_operations_are_a_third_of_those_of_a_training(name: str) -> None:
    found = list(work.layers(SHAPES[name], 512))
    assert 3 * sum(layer[2] for layer in found) == method.operations_per_token(SHAPES[name], 512)


@pytest.mark.parametrize("name", ["gpt2-test", "llama-test", "llama-5m"])
def test_each_parameter_is_in_one_layer_of_its_name(name: str) -> None:
    with torch.device("meta"):
        decoder = Decoder(SHAPES[name])
    sizes = {key: one.numel() for key, one in decoder.named_parameters()}
    found = {layer[0]: layer[1] for layer in work.layers(SHAPES[name], 64) if layer[1]}
    own: dict[str, list[int]] = {}
    for key, size in sizes.items():
        own.setdefault(key.rpartition(".")[0], []).append(size)
    assert found == own
