"""Tests of the operations of a training step, which `trimaran plan` reads from work.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from futuregan import work
from futuregan.model import Discriminator, EqualizedLayer, Generator, Shape, upsampling_conv
from trainkit.torch import work as layers

FILE = Path(__file__).parents[1] / "work.json"
SHAPE = Shape(16, width=8)


@pytest.mark.parametrize("size", work.SIZES)
def test_the_file_has_the_layers_of_the_networks_as_they_are(size: int) -> None:
    assert json.loads(FILE.read_text())[str(size)] == work.describe(size)


def test_a_step_has_the_operations_that_the_layers_have_in_three_passes() -> None:
    found = work.describe(16)["layers"]
    with torch.device("meta"):
        pair = Generator(Shape(16)), Discriminator(Shape(16), work.Feature())
        counted = work.step_operations(*pair, torch.empty(1, 3, 12, 16, 16))
    assert 3 * sum(layer[2] for layer in found) == pytest.approx(counted, rel=1e-6)


def test_the_discriminator_works_for_more_passes_than_one_training_pass() -> None:
    """In one step, the discriminator has the operations of four to six training passes.

    Real and fake clips are two passes, and the generator's loss is another. The gradient penalty
    takes the operations of more than one pass.
    """
    with torch.device("meta"):
        judge, clip = Discriminator(SHAPE, work.Feature()), torch.empty(1, 3, 12, 16, 16)
    once = sum(layer[2] for layer in layers.layers(judge, clip, operations=work.operations))
    with torch.device("meta"):
        generator = Generator(SHAPE)
    made = sum(layer[2] for layer in layers.layers(generator, clip[:, :, :6],
                                                   operations=work.operations))
    step = work.step_operations(generator, judge, clip)
    assert 4 < (step - 3 * made) / (3 * once) < 6


def test_a_window_of_a_transposed_convolution_makes_each_value_once() -> None:
    layer = upsampling_conv(8, 4)
    output = layer(torch.ones(1, 8, 1, 2, 2))
    assert work.operations(layer, output) == 2 * 4 * 4 * 4 * 8
    flat = EqualizedLayer((1, 5))
    assert work.operations(flat, flat(torch.ones(1, 5))) == 2 * 5
