"""LoRA trains only low-rank matrices, in every layout, and can be merged into the weights."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layout_worker import global_batch, run
from test_language_layouts import train
from test_language_weights import InMemory, loaded, logits, network_of, text, theirs, trained, write
from torch import Tensor

from language_model import method
from language_model.__main__ import main
from language_model.layout import Layout
from language_model.lora import Lora, merged
from language_model.shapes import SHAPES
from language_model.state import trained_weights
from language_model.steps import Network
from trainkit import checkpoint
from trainkit.torch.strategy import TorchStrategy

__all__ = ["text"]  # a fixture
FAMILIES = ("gpt2-test", "llama-test")
LORA = Lora(4, 8.0)


def adapted(name: str, lora: Lora = LORA) -> Network:
    """Return an adapted network with the weights of `network_of`, and with products B A of 0."""
    network, base = Network(SHAPES[name], Layout(), TorchStrategy(), 3, lora=lora), network_of(
        SHAPES[name])
    with torch.no_grad():
        for key, weight in base.parameters.items():
            network.parameters[key].copy_(weight)
    return network


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 257, (2, 40))


@pytest.mark.parametrize("name", FAMILIES)
def test_an_adaptation_begins_as_the_network_that_it_adapts(name: str, tokens: Tensor) -> None:
    assert torch.equal(logits(adapted(name), tokens), logits(network_of(SHAPES[name]), tokens))


@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_products_are_trained(name: str) -> None:
    network = adapted(name)
    count = sum(one.numel() for one in network.parameters.values() if one.requires_grad)
    shape = SHAPES[name]
    sizes = [one.shape for key, one in network_of(shape).parameters.items()
             if key.startswith("blocks.") and one.ndim == 2]
    assert count == LORA.parameters(shape) == 4 * sum(a + b for a, b in sizes)
    before = {key: one.clone() for key, one in network.parameters.items()}
    optimizer = method.make_optimizer(network, method.AdamW(1e-2))
    for step in range(2):  # in the first step, the gradient of A is 0, because B is
        optimizer.zero_grad()
        network.gradients(global_batch(step, False), 1 / 256)
        optimizer.step()
    for key, weight in network.parameters.items():
        assert torch.equal(weight, before[key]) == (not key.endswith(("lora_a", "lora_b"))), key
    kept = sum(one.numel() for state in method.states(optimizer).values() for one in state.values()
               if one.ndim)
    assert kept == 2 * count


def test_a_product_is_scaled_by_alpha_over_rank(tokens: Tensor) -> None:
    """The adapted weights are W + (alpha / rank) B A, as in the paper."""
    network, plain = adapted("llama-test"), network_of(SHAPES["llama-test"])
    with torch.no_grad():
        for key, b in network.parameters.items():
            if key.endswith("lora_b"):
                b.normal_(0, 0.1)
                a = network.parameters[key.replace("lora_b", "lora_a")]
                plain.parameters[key.replace("lora_b", "weight")] += 8.0 / 4 * b @ a
    found = logits(network, tokens)
    torch.testing.assert_close(found, logits(plain, tokens), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, logits(network_of(SHAPES["llama-test"]), tokens), atol=1e-2)


def test_a_merged_weight_has_its_product_in_each_part() -> None:
    weight, a, b = torch.randn(6, 5), torch.randn(4, 5), torch.randn(6, 4)
    stored = {"x.weight": weight, "x.lora_a": a, "x.lora_b": b, "norm.weight": torch.ones(3)}
    found = merged({name: InMemory(one) for name, one in stored.items()}, asdict(LORA))
    assert sorted(found) == ["norm.weight", "x.weight"]
    whole = (weight + 8.0 / 4 * b @ a).numpy()
    np.testing.assert_allclose(np.asarray(found["x.weight"].read()), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(found["x.weight"].read((1, 2), (3, 2))), whole[1:4, 2:4], rtol=1e-5, atol=1e-6
    )


def test_an_adaptation_needs_fewer_operations() -> None:
    """A frozen weight has no gradient, and needs 4 instead of 6 operations per token."""
    shape = SHAPES["llama-test"]
    whole, small = (method.operations_per_token(shape, 64, one) for one in (None, LORA))
    outside = shape.width * shape.vocabulary  # the table of tokens is in no product
    assert whole - small == 2 * (shape.parameters - outside) - 6 * LORA.parameters(shape)


@pytest.mark.slow
def test_a_merged_export_computes_the_logits_of_the_training(
    text: Path, tmp_path: Path, tokens: Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write(tmp_path / "base", network_of(SHAPES["llama-test"]))
    words = ["--initial", str(base), "--lora-rank", "4", "--lora-alpha", "8", "--learning-rate",
             "2e-2", "--steps", "6"]
    file = trained(text, tmp_path / "run", *words)
    state = checkpoint.load(file)
    network = Network(SHAPES["llama-test"], Layout(), TorchStrategy(), 9, lora=LORA)
    stored = state["parts"]["network"]
    assert stored.keys() == network.parameters.keys()
    with torch.no_grad():
        for key, weight in network.parameters.items():
            weight.copy_(torch.from_numpy(stored[key].read()))
    assert main(["export", "--checkpoint", str(file), "--to", str(tmp_path / "out")]) == 0
    expected = logits(network, tokens)
    for found in (theirs(tmp_path / "out", tokens), logits(loaded(tmp_path / "out"), tokens),
                  logits(loaded(file), tokens)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits(loaded(base), tokens), expected, atol=1e-2)
    trained(text, tmp_path / "half", *words, "--checkpoint-every", "3", "--max-steps", "3")
    (tmp_path / "half/result.json").unlink()
    again = trained(text, tmp_path / "half", *words, "--checkpoint-every", "3", "--resume", "auto")
    for key, one in checkpoint.load(again)["parts"]["network"].items():
        assert (one.read() == stored[key].read()).all()
    capsys.readouterr()
    assert main(["evaluate", "--data", str(text), "--out", str(tmp_path / "run"), "--json"]) == 0
    adapted_loss = json.loads(capsys.readouterr().out)["loss"]
    whole = trained(text, tmp_path / "whole", "--initial", str(tmp_path / "out"), "--steps", "1",
                    "--learning-rate", "1e-12", "--weight-decay", "0")
    assert main(["evaluate", "--data", str(text), "--checkpoint", str(whole), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(adapted_loss, abs=1e-5)


def test_options_of_an_adaptation_without_weights_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--lora-rank", "4"], ["--lora-alpha", "4"]):
        assert main(["train", "--synthetic", "--out", str(tmp_path / "run"), *words]) == 2
        assert "error[arguments-conflict]: --lora" in capsys.readouterr().err


LAYOUTS: dict[str, dict[str, Any]] = {
    "ddp": {}, "fsdp": {"data_parallel": "fsdp"}, "zero2": {"data_parallel": "zero2"},
    "zero1": {"data_parallel": "zero1"}, "tp": {"tensor": 2}, "cp": {"context": 2},
    "1f1b": {"pipeline": 2, "micro_batches": 2}, "recompute": {"recompute": "full"},
    "interleaved": {"pipeline": 2, "micro_batches": 2, "schedule": "interleaved"},
}
JOBS = [
    {"layout": layout, "shape": shape, "lora": 4, "steps": 8}
    for shape in FAMILIES for layout in LAYOUTS.values()
]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_ranks_adapt_like_one_process_and_resume(tmp_path: Path) -> None:
    whole = [{**job, "save": str(tmp_path / str(n)), "at": 4} for n, job in enumerate(JOBS)]
    resumed = [{**job, "first": 4, "load": str(tmp_path / str(n) / "step-00000004.npz")}
               for n, job in enumerate(JOBS)]
    found = train(2, [*whole, *resumed], tmp_path)
    alone = {shape: run(TorchStrategy(), Layout(), shape=shape, lora=4, steps=8)
             for shape in FAMILIES}
    for job, one, again in zip(JOBS, found, found[len(JOBS):], strict=False):
        expected = alone[job["shape"]]
        assert one["losses"] == pytest.approx(expected["losses"], abs=1e-4), job
        assert one["norms"] == pytest.approx(expected["norms"], abs=1e-4), job
        assert again["digest"] == one["digest"], job
    assert alone["llama-test"]["losses"][0] != alone["llama-test"]["losses"][-1]


@pytest.mark.long
def test_four_ranks_adapt_like_one_process(tmp_path: Path) -> None:
    """Each layout combines two kinds of parallelism; all must give the same merged weights."""
    layouts = [{"data_parallel": "fsdp", "tensor": 2},
               {"tensor": 2, "pipeline": 2, "micro_batches": 2}]
    jobs = [{"layout": layout, "shape": "llama-test", "lora": 4, "steps": 4, "at": 4,
             "save": str(tmp_path / str(n))} for n, layout in enumerate(layouts)]
    found = train(4, jobs, tmp_path)
    alone = run(TorchStrategy(), Layout(), shape="llama-test", lora=4, steps=4, at=4,
                save=str(tmp_path / "alone"))
    merged = []
    for name in ("alone", "0", "1"):
        state = checkpoint.load(tmp_path / name / "step-00000004.npz")
        state["about"] = {"lora": {"rank": 4, "alpha": 4.0}}
        merged.append(trained_weights(state))
    for one, weights in zip(found, merged[1:], strict=True):
        assert one["losses"] == pytest.approx(alone["losses"], abs=1e-4)
        for key, weight in weights.items():
            assert weight.read() == pytest.approx(merged[0][key].read(), abs=1e-4)
