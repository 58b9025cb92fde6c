"""Test the decoders: numbers of parameters, hand-computed values, masks, initial weights."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from language_model import method, model
from language_model.batch import Batch
from language_model.layout import Layout
from language_model.model import Decoder, initial_values
from language_model.shapes import SHAPES, Shape
from language_model.steps import Network, summed_cross_entropy
from trainkit.torch.strategy import TorchStrategy

PUBLISHED = {
    "gpt2-124m": 124_439_808, "gpt2-350m": 354_823_168, "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200, "llama2-7b": 6_738_415_616, "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496, "llama3-1b": 1_235_814_400,
}
"""The numbers of parameters of the published weights."""
FAMILIES = ("gpt2-test", "llama-test")


@pytest.mark.parametrize("name", SHAPES)
def test_numbers_of_parameters_are_those_of_the_published_weights(name: str) -> None:
    with torch.device("meta"):
        network = Decoder(SHAPES[name])
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == SHAPES[name].parameters == PUBLISHED.get(name, count)


@pytest.mark.parametrize("name", FAMILIES)
def test_stages_compute_what_the_whole_decoder_does(name: str) -> None:
    whole = Network(SHAPES[name], Layout(), TorchStrategy(), 3).stages[0].eval()
    parts = [Decoder(SHAPES[name], blocks) for blocks in (range(1), range(1, 3), range(3, 4))]
    values = whole.state_dict()
    tokens = torch.randint(0, 257, (2, 16))
    positions = torch.arange(16).expand(2, 16)
    x = tokens
    for part in parts:
        part.load_state_dict({key: values[key] for key in part.state_dict()})
        x = part.eval()(x, positions)
    torch.testing.assert_close(x, whole(tokens, positions))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_token_sees_no_later_one(name: str) -> None:
    network = Network(SHAPES[name], Layout(), TorchStrategy(), 3).stages[0].eval()
    tokens, positions = torch.randint(0, 257, (1, 16)), torch.arange(16)[None]
    before = network(tokens, positions)
    tokens[0, 9] = (tokens[0, 9] + 1) % 257
    after = network(tokens, positions)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.isclose(before[:, 9:], after[:, 9:]).all(-1).any()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_token_sees_no_other_document(name: str) -> None:
    network = Network(SHAPES[name], Layout(), TorchStrategy(), 3).stages[0].eval()
    tokens, positions = torch.randint(0, 257, (1, 16)), torch.arange(16)[None]
    documents = (positions >= 6).long()
    before = network(tokens, positions, documents)
    tokens[0, 2] = (tokens[0, 2] + 1) % 257
    after = network(tokens, positions, documents)
    assert torch.equal(before[:, 6:], after[:, 6:])
    assert not torch.equal(before[:, 2:6], after[:, 2:6])


def test_rotations_keep_lengths_and_depend_on_distances_only() -> None:
    """The product of two rotated vectors depends on their distance: RoFormer, section 3.2.2."""
    with torch.device("meta"):
        decoder = Decoder(SHAPES["llama-test"])
    positions = torch.tensor([[0, 5, 30, 35]])
    rotation = decoder.rotation(positions)
    assert rotation is not None
    query, key = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 4, 8)
    turned, other = model.rotate(query, rotation), model.rotate(key, rotation)
    torch.testing.assert_close(turned.norm(dim=-1), query.norm(dim=-1))
    products = turned[0, 0] @ other[0, 0].T
    torch.testing.assert_close(products[1, 0], products[3, 2])
    angle = torch.tensor(5.0)  # the first pair turns by one radian per position
    expected = query[0, 0, 1, 0] * angle.cos() - query[0, 0, 1, 4] * angle.sin()
    torch.testing.assert_close(turned[0, 0, 1, 0], expected)


def test_the_logits_depend_on_distances_between_tokens_only() -> None:
    network = Network(SHAPES["llama-test"], Layout(), TorchStrategy(), 3).stages[0].eval()
    tokens, positions = torch.randint(0, 257, (1, 16)), torch.arange(16)[None]
    near, far = network(tokens, positions), network(tokens, positions + 40)
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(near, network(tokens, 2 * positions), rtol=1e-4, atol=1e-5)


def test_grouped_queries_share_keys_and_values() -> None:
    shape = SHAPES["llama-test"]
    attention = model.Attention(shape, 0.0)
    x = torch.randn(1, 5, shape.width)
    found = attention(x, model.Around(None, None, None))
    query = attention.query(x).view(1, 5, 4, 8).transpose(1, 2)
    key, value = (
        part(x).view(1, 5, 2, 8).transpose(1, 2).repeat_interleave(2, 1)
        for part in (attention.key, attention.value)
    )
    weights = (query @ key.transpose(2, 3) / math.sqrt(8)).masked_fill(
        torch.ones(5, 5).triu(1).bool(), -math.inf
    ).softmax(-1)
    expected = attention.output((weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected)


def test_the_feed_forward_networks_are_those_of_the_papers() -> None:
    x = torch.randn(3, 32)
    gelu, swiglu = (model.FeedForward(SHAPES[name]) for name in FAMILIES)
    inner = gelu.up(x)
    curve = inner / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(gelu(x), gelu.down(curve))
    assert swiglu.gate is not None
    inner = swiglu.gate(x)
    torch.testing.assert_close(
        swiglu(x), swiglu.down(inner * inner.sigmoid() * swiglu.up(x))
    )


def test_initial_weights_depend_on_seed_and_name_only() -> None:
    shape, size = SHAPES["gpt2-test"], (64, 32)
    one = initial_values("blocks.0.attention.query.weight", shape, size, 1)
    assert torch.equal(one, initial_values("blocks.0.attention.query.weight", shape, size, 1))
    assert not torch.equal(one, initial_values("blocks.1.attention.query.weight", shape, size, 1))
    assert not torch.equal(one, initial_values("blocks.0.attention.query.weight", shape, size, 2))
    assert one.std().item() == pytest.approx(0.02, rel=0.1)
    smaller = initial_values("blocks.0.attention.output.weight", shape, size, 1)
    assert smaller.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.1)
    assert initial_values("blocks.0.attention.output.bias", shape, (32,), 1).count_nonzero() == 0
    assert (initial_values("blocks.0.attention_norm.weight", shape, (32,), 1) == 1).all()


def test_tied_weights_are_one_parameter() -> None:
    network = Network(SHAPES["gpt2-test"], Layout(), TorchStrategy(), 3)
    stage = network.stages[0]
    assert stage.head is not None
    assert stage.embedding is not None
    assert stage.head.weight is stage.embedding.weight
    assert "head.weight" not in network.parameters
    assert "head.weight" in Network(SHAPES["llama-test"], Layout(), TorchStrategy()).parameters


def test_operations_of_a_token_are_those_of_its_matrix_products() -> None:
    """The formula gives three times the operations of the forward pass, which this test counts."""
    for name in FAMILIES:
        shape, length = SHAPES[name], 16
        network = Network(shape, Layout(), TorchStrategy()).stages[0]
        tokens, positions = torch.zeros(1, length, dtype=torch.int64), torch.arange(length)[None]
        count = 0

        def add(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
            nonlocal count
            assert isinstance(module, torch.nn.Linear)
            count += 2 * output.numel() * module.in_features

        for module in network.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(add)
        network(tokens, positions)
        attention = 2 * 2 * shape.layers * length * length * shape.width  # not halved: PaLM
        expected = 3 * (count + attention) / length
        biases = 6 * sum(p.numel() for p in network.parameters() if p.ndim == 1)
        assert method.operations_per_token(shape, length) == expected + biases


def test_dropout_acts_in_a_training_only() -> None:
    network = Network(SHAPES["gpt2-test"], Layout(), TorchStrategy(), 3, dropout=0.5).stages[0]
    tokens, positions = torch.randint(0, 257, (1, 16)), torch.arange(16)[None]
    assert not torch.equal(network(tokens, positions), network(tokens, positions))
    network.eval()
    assert torch.equal(network(tokens, positions), network(tokens, positions))


class Schedule:
    """A stand-in for the schedule of a pipeline; it records the `return_outputs` of each call."""

    def __init__(self) -> None:
        self.kept: list[bool] = []

    def step(self, *_: object, return_outputs: bool = True, **__: object) -> None:
        self.kept.append(return_outputs)

    def eval(self, *args: object, **options: Any) -> None:
        self.step(*args, **options)


def test_a_pipeline_does_not_keep_the_logits_of_all_micro_batches() -> None:
    network, schedule = Network(SHAPES["gpt2-test"], Layout(), TorchStrategy(), 3), Schedule()
    network._schedule = schedule
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    batch = Batch(tokens, tokens, torch.arange(16).expand(2, 16))
    network.gradients(batch, 1.0)
    network.loss(batch)
    assert schedule.kept == [False, False]


def test_bf16_is_near_fp32() -> None:
    shape: Shape = dataclasses.replace(SHAPES["llama-test"], layers=2)
    found = {}
    for precision in ("fp32", "bf16", "fp16"):
        network = Network(shape, Layout(precision=precision), TorchStrategy(), 3)
        tokens = torch.arange(34).view(2, 17)
        batch = Batch(tokens[:, :-1], tokens[:, 1:], torch.arange(16).expand(2, 16))
        found[precision] = network.gradients(batch, 1 / 32).item() / 32
        assert all(p.grad is not None and p.dtype == p.grad.dtype == torch.float32
                   for p in network.parameters.values())
    assert found["bf16"] == pytest.approx(found["fp32"], rel=1e-2)
    assert found["fp16"] == pytest.approx(found["fp32"], rel=1e-2)
    assert found["fp32"] == pytest.approx(math.log(257), abs=0.1)


def test_padding_counts_neither_in_the_loss_nor_in_the_gradients() -> None:
    logits = torch.randn(2, 3, 257, requires_grad=True)
    targets = torch.tensor([[5, 7, -100], [-100, -100, -100]])
    summed_cross_entropy(logits, targets).backward()
    assert logits.grad is not None
    assert logits.grad[0, 2].count_nonzero() == logits.grad[1].count_nonzero() == 0
    expected = functional.cross_entropy(logits[0, :2], targets[0, :2], reduction="sum")
    torch.testing.assert_close(summed_cross_entropy(logits, targets), expected)
