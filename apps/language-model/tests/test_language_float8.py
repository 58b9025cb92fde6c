"""Products in fp8 are exact for powers of two, and train like bf16; impossible ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from layout_worker import run
from test_language_layouts import train
from torch import Tensor, nn

from language_model import float8, method
from language_model.__main__ import main
from language_model.batch import Batch
from language_model.layout import Layout, without_training
from language_model.shapes import SHAPES
from language_model.steps import Network
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import refused
from trainkit.torch import precision
from trainkit.torch.strategy import TorchStrategy

SHAPE = replace(SHAPES["llama-test"], vocabulary=64)


def random(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [float8.FORWARD, float8.BACKWARD])
def test_powers_of_two_are_multiplied_exactly(kind: torch.dtype) -> None:
    powers = torch.randint(-3, 4, (32, 48), generator=torch.Generator().manual_seed(1))
    a, b = 2.0 ** powers[:, :16], 2.0 ** powers[:16]
    found = float8.product(a, b, kind, torch.float32)
    assert torch.equal(found, a @ b)


def test_the_error_of_a_value_is_that_of_three_bits() -> None:
    values, factor = float8.scaled(random(64, 64), float8.FORWARD)
    restored = values.float() * factor
    large = random(64, 64).abs() > 0.01  # smaller values have fewer bits
    error = ((restored - random(64, 64)).abs() / random(64, 64).abs())[large]
    assert error.max() <= 2 ** -4
    assert error.max() > 2 ** -6
    zeros, factor = float8.scaled(torch.zeros(16, 16), float8.FORWARD)
    assert not zeros.float().any()
    assert factor.isfinite()


def test_a_layer_has_the_gradients_of_its_product() -> None:
    plain, layer = nn.Linear(32, 48), nn.Linear(32, 48)
    layer.load_state_dict(plain.state_dict())
    float8.convert(layer)
    x = random(4, 8, 32)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [one(given) for one, given in zip((plain, layer), inputs, strict=True)]
    for one in outputs:
        one.float().square().sum().backward()
    assert outputs[1].dtype == torch.bfloat16
    for exact, found in (
        (outputs[0], outputs[1].float()), (inputs[0].grad, inputs[1].grad),
        (plain.weight.grad, layer.weight.grad), (plain.bias.grad, layer.bias.grad),
    ):
        assert exact is not None
        assert found is not None
        assert (found - exact).norm() < 0.1 * exact.norm()
        assert not torch.equal(found, exact)
    layer.eval()
    assert torch.equal(layer(x), plain(x))  # an evaluation does not compute in fp8


def losses(kind: str, recompute: str = "none") -> list[float]:
    """Train for 20 steps on a single batch; return the loss of each step."""
    torch.manual_seed(1)
    network = Network(SHAPE, Layout(precision=kind, recompute=recompute), TorchStrategy(), 17)
    optimizer = method.make_optimizer(network, method.AdamW(3e-3))
    tokens = torch.randint(0, 64, (4, 33), generator=torch.Generator().manual_seed(2))
    positions = torch.arange(32).expand(4, 32).contiguous()
    batch, found = Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), positions), []
    for _ in range(20):
        optimizer.zero_grad()
        found.append(float(network.gradients(batch, 1 / 128)) / 128)
        optimizer.step()
    return found


def test_a_training_in_fp8_learns_as_in_bf16() -> None:
    half, fp8 = losses("bf16"), losses("fp8")
    assert fp8[-1] < 0.7 * fp8[0]
    assert fp8 == pytest.approx(half, rel=0.05)
    assert fp8 != half
    for kind in ("selective", "full"):
        assert losses("fp8", kind) == fp8


@pytest.mark.slow
def test_two_ranks_train_in_fp8_nearly_as_one_process(tmp_path: Path) -> None:
    """Losses differ by at most 1 %, and gradient norms by 5 %: each rank scales its own values."""
    layouts = [{}, {"data_parallel": "zero1"}, {"data_parallel": "zero2"},
               {"data_parallel": "fsdp", "recompute": "selective"}, {"context": 2},
               {"pipeline": 2, "micro_batches": 2}]
    jobs = [{"layout": {**layout, "precision": "fp8"}, "steps": 8} for layout in layouts]
    alone = run(TorchStrategy(), Layout(precision="fp8"), steps=8)
    for job, found in zip(jobs, train(2, jobs, tmp_path), strict=True):
        assert found["losses"] == pytest.approx(alone["losses"], rel=0.01), job
        assert found["norms"] == pytest.approx(alone["norms"], rel=0.05), job


@pytest.mark.parametrize(("changes", "layout", "named"), [
    ({"width": 72, "heads": 4, "key_heads": 4}, Layout(), ("width", 72)),
    ({"hidden": 100}, Layout(), ("hidden", 100)),
    ({}, Layout(micro_batches=4), ("tokens", 8)),
    ({}, Layout(tensor=2), ("--tensor-parallel",)),
])
def test_sizes_that_fp8_cannot_multiply_are_refused(
    changes: dict[str, int], layout: Layout, named: tuple[object, ...]
) -> None:
    with refused(ArgumentError, "layout-impossible", *named):
        replace(layout, precision="fp8").check(replace(SHAPE, **changes), layout.tensor, 8, 4)
    Layout(precision="fp8").check(SHAPE, 1, 8, 4)


def test_a_device_without_fp8_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", "--synthetic", "--out", str(tmp_path / "run"), "--model", "gpt2-test",
             "--sequence", "32", "--steps", "1", "--device", "cpu", "--precision", "fp8"]
    assert main(words) == 2
    assert "error[precision-unsupported]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    for capability, fits in (((8, 0), False), ((8, 9), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert precision.has_fp8(torch.device("cuda")) is fits
    assert not precision.has_fp8(torch.device("cpu"))


def test_a_network_trained_in_fp8_is_evaluated_in_bf16() -> None:
    assert without_training(None, "fp8") == "bf16"
    assert without_training("fp32", "fp8") == "fp32"
    assert without_training(None, "fp16") == "fp16"
