"""Test the learning rate, clipping, AdamW and the loss scale, and the check of layouts."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from language_model import method, state
from language_model.layout import Layout
from language_model.scaling import FIRST, GOOD_STEPS, LossScale
from language_model.settings import EvaluateSettings, TrainSettings
from language_model.shapes import SHAPES
from language_model.steps import Network
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import refused
from trainkit.torch.strategy import TorchStrategy

BASE = TrainSettings(out=Path("run"), synthetic=True, learning_rate=1.0)


def rates(settings: TrainSettings, steps: int) -> list[float]:
    return [method.learning_rate(settings, step, steps) for step in range(steps)]


def test_the_rate_rises_linearly_and_falls_to_its_last_part() -> None:
    cosine = rates(dataclasses.replace(BASE, warmup_steps=4), 24)
    assert cosine[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert cosine[14] == pytest.approx(0.1 + 0.9 / 2)  # half of the decay
    assert method.learning_rate(dataclasses.replace(BASE, warmup_steps=4), 24, 24) == \
        pytest.approx(0.1)
    linear = rates(dataclasses.replace(BASE, schedule="linear", final_rate=0.0), 10)
    assert linear == pytest.approx([1 - step / 10 for step in range(10)])
    assert rates(dataclasses.replace(BASE, schedule="constant"), 5) == [1.0] * 5


def test_a_warmup_longer_than_the_training_is_refused() -> None:
    with refused(ArgumentError, "arguments-conflict", 30, 20):
        method.check(dataclasses.replace(BASE, warmup_steps=30, epochs=2), 10)
    method.check(dataclasses.replace(BASE, warmup_steps=20, epochs=2), 10)


def test_clipping_bounds_the_norm() -> None:
    assert method.clipping(torch.tensor(4.0), 1.0).item() == 0.25
    assert method.clipping(torch.tensor(0.5), 1.0).item() == 1.0
    assert method.clipping(torch.tensor(0.0), 1.0).item() == 1.0
    assert method.clipping(torch.tensor(4.0), 0.0).item() == 1.0


def test_adamw_updates_as_in_the_paper() -> None:
    """Loshchilov and Hutter, algorithm 2; the weight decay is multiplied by the learning rate."""
    network = Network(SHAPES["gpt2-test"], Layout(), TorchStrategy(), 3)
    settings = dataclasses.replace(
        BASE, learning_rate=0.1, weight_decay=0.5, beta1=0.8, beta2=0.6, epsilon=0.3
    )
    optimizer = method.make_optimizer(network, method.AdamW.of(settings))
    expected = {name: p.detach().clone() for name, p in network.parameters.items()}
    mean, square = (
        {name: torch.zeros_like(p) for name, p in network.parameters.items()} for _ in range(2)
    )
    for step in (1, 2, 3):
        for name, parameter in network.parameters.items():
            gradient = torch.randn_like(parameter)
            parameter.grad = gradient.clone()
            mean[name] = 0.8 * mean[name] + 0.2 * gradient
            square[name] = 0.6 * square[name] + 0.4 * gradient**2
            root = (square[name] / (1 - 0.6**step)).sqrt()
            update = mean[name] / (1 - 0.8**step) / (root + 0.3)
            decay = 0.5 if parameter.ndim > 1 else 0.0
            expected[name] = expected[name] * (1 - 0.1 * decay) - 0.1 * update
        optimizer.step()
    for name, parameter in network.parameters.items():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-5, atol=1e-6)


def test_the_factor_of_the_loss_halves_after_an_overflow_and_doubles_later() -> None:
    scale = LossScale(True)
    scale.update(False)
    assert scale.factor == FIRST / 2
    for _ in range(GOOD_STEPS - 1):
        scale.update(True)
    assert scale.factor == FIRST / 2
    other = LossScale(True)
    other.load_state_dict(scale.state_dict())
    other.update(True)
    assert other.factor == FIRST
    off = LossScale(False)
    off.update(False)
    assert off.factor == 1.0


def test_a_resume_may_change_the_layout_but_not_the_method() -> None:
    data: Any = SimpleNamespace(name="text", vocabulary=257)
    one = state.identity(BASE, data, None)
    for name, value in {"strategy": "mesh", "tensor_parallel": 2, "data_parallel": "fsdp",
                        "micro_batches": 4, "recompute": "full", "max_steps": 5}.items():
        changes: dict[str, Any] = {name: value}
        assert state.identity(dataclasses.replace(BASE, **changes), data, None) == one, name
    for name, value in {"seed": 7, "batch_size": 4, "learning_rate": 2.0, "steps": 9, "clip": 2.0,
                        "precision": "bf16", "document_mask": True, "lora_rank": 4}.items():
        changes = {name: value}
        assert state.identity(dataclasses.replace(BASE, **changes), data, None) != one, name
    assert state.identity(BASE, data, "a digest") != one


REFUSED = {
    "heads": (Layout(tensor=3), 3, ("4 attention heads", "3")),
    "key heads": (Layout(tensor=4), 4, ("2 heads of keys", "4")),
    "layers": (Layout(pipeline=3, micro_batches=3), 3, ("4 layers", "3")),
    "stages": (
        Layout(pipeline=4, micro_batches=4, schedule="interleaved"), 4, ("4 layers", "8"),
    ),
    "sequence": (Layout(context=3), 3, ("32 tokens", "3")),
    "batch": (Layout(), 3, ("16 sequences", "3")),
    "micro-batches": (Layout(micro_batches=5), 1, ("16 sequences", "5")),
    "pipeline": (Layout(pipeline=2, micro_batches=1), 2, ("--micro-batches 1", "2")),
    "compiled": (Layout(recompute="selective", compile=True), 1, ("--compile", "full")),
    "zero1": (Layout(data_parallel="zero1", tensor=2), 4, ("zero1", "fsdp")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_layouts_are_refused_with_their_numbers(name: str) -> None:
    layout, ranks, named = REFUSED[name]
    with refused(ArgumentError, "layout-impossible", *named):
        layout.check(SHAPES["llama-test"], ranks, 32, 16)


def test_a_pipeline_that_cannot_evaluate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("language_model.layout.Schedule1F1B", object)  # no `eval`: PyTorch 2.7
    with refused(ArgumentError, "layout-impossible", torch.__version__):
        Layout(pipeline=2, micro_batches=2).check(SHAPES["llama-test"], 2, 32, 16)
    Layout().check(SHAPES["llama-test"], 2, 32, 16)


def test_possible_layouts_are_not_refused() -> None:
    for layout, ranks in (
        (Layout(), 1), (Layout(), 16), (Layout(tensor=2, context=2), 8),
        (Layout(pipeline=4, micro_batches=4), 4),
        (Layout(pipeline=2, micro_batches=2, schedule="interleaved", tensor=2), 4),
    ):
        layout.check(SHAPES["llama-test"], ranks, 32, 16)


def test_a_sequence_longer_than_the_positions_is_refused() -> None:
    with refused(ArgumentError, "layout-impossible", 128, 64):
        Layout().check(SHAPES["gpt2-test"], 1, 128, 16)


def test_options_of_a_mesh_need_one() -> None:
    for name, value in (("tensor_parallel", 2), ("data_parallel", "fsdp")):
        with refused(ArgumentError, "arguments-conflict", str(value), "--strategy mesh"):
            dataclasses.replace(BASE, **{name: value}).check()
        dataclasses.replace(BASE, strategy="mesh", **{name: value}).check()
    with refused(ArgumentError, "argument-missing", "--synthetic"):
        EvaluateSettings(out=Path("run")).check()


def test_stages_of_a_pipeline_have_consecutive_blocks() -> None:
    plain, several = Layout(pipeline=2), Layout(pipeline=2, schedule="interleaved")
    assert [list(plain.blocks(8, rank)) for rank in (0, 1)] == [[range(4)], [range(4, 8)]]
    assert [list(several.blocks(8, rank)) for rank in (0, 1)] == [
        [range(2), range(4, 6)], [range(2, 4), range(6, 8)],
    ]
    assert list(Layout().blocks(3, 0)) == [range(3)]


def test_perplexity_and_bits_per_byte_are_those_of_the_loss() -> None:
    from language_model.data import Sequences, synthetic
    from language_model.evaluate import evaluate

    network = Network(SHAPES["llama-test"], Layout(), TorchStrategy(), 3)
    split = dataclasses.replace(synthetic("val", 1000, 257), text_bytes=3000)
    batches = Sequences(split, 32, 4)
    scores = evaluate(network, batches, lambda: False)
    assert scores is not None
    assert scores.perplexity == pytest.approx(math.exp(scores.loss))
    assert scores.bits_per_byte == pytest.approx(scores.loss * 999 / math.log(2) / 3000)
    assert evaluate(network, batches, lambda: True) is None
    other = evaluate(network, Sequences(split, 32, 7), lambda: False)
    assert other is not None
    assert other.loss == pytest.approx(scores.loss, rel=1e-6)
