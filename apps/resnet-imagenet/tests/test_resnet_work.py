"""Test work.json, the operations of each layer, from which `trimaran plan` predicts times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from resnet_imagenet import benchmark, model, work
from resnet_imagenet.settings import ZOO

FILE = Path(__file__).parents[1] / "work.json"


@pytest.mark.parametrize("name", dict.fromkeys((*model.MODELS, *ZOO)))
def test_the_file_has_the_layers_of_the_networks_as_they_are(name: str) -> None:
    assert json.loads(FILE.read_text())[name] == work.describe(name)


@pytest.mark.parametrize("name", ["resnet50", "googlenet"])
def test_parameters_and_operations_are_those_of_the_benchmark(name: str) -> None:
    found = work.describe(name)
    with torch.device("meta"):
        network = benchmark.build(name, 224)
        flops = benchmark.count_flops(network, torch.empty(1, 3, 224, 224))
    assert sum(layer[2] for layer in found["layers"]) == flops
    assert sum(sum(layer[1]) for layer in found["layers"]) == sum(
        one.numel() for one in network.parameters())
