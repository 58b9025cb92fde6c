"""Test the optimizer, and the learning rates of published runs."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

from resnet_imagenet.method import (
    compile_network,
    given_cache,
    learning_rate,
    make_optimizer,
    summed_cross_entropy,
)
from resnet_imagenet.settings import TrainSettings
from trainkit.torch.optim import Lars


@pytest.fixture
def nothing_is_zero_by_chance() -> Iterator[None]:
    """Make PyTorch fill uninitialized memory with NaN, so that no value is zero by chance."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nothing_is_zero_by_chance")
def test_a_first_step_skipped_for_an_overflow_leaves_nothing_in_the_momentum() -> None:
    """The first step that is not skipped changes a weight by learning rate times gradient only.

    PyTorch's fused SGD allocates the momentum in its first step, even if the step is skipped.
    """
    layer = torch.nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    settings = TrainSettings(base_lr=0.5, momentum=0.9, weight_decay=0.0)
    optimizer = make_optimizer(layer, settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for gradient in (torch.inf, 1.0):  # the overflow halves the scale to 1
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        scaler.scale(torch.zeros(()))
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(layer.weight.detach(), before - 0.5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_is_towards_all_classes_alike(smoothing: float) -> None:
    """Szegedy et al.: the target is 1 - e for the true class, plus e / K for each of K classes."""
    logits = torch.tensor([[1.0, -2.0, 0.5, 3.0], [0.25, 0.0, -1.0, 2.0]])
    wanted = 0.0
    for row, label in zip(logits.tolist(), (2, 0), strict=True):
        whole = math.log(sum(math.exp(value) for value in row))
        logs = [value - whole for value in row]
        wanted -= (1 - smoothing) * logs[label] + smoothing * sum(logs) / 4
    found = summed_cross_entropy(logits, torch.tensor([2, 0]), smoothing)
    assert found.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_momentum_begins_with_the_first_gradient(nesterov: bool) -> None:
    """The SGD of `make_optimizer` updates weights bitwise as a plain `torch.optim.SGD` does.

    `make_optimizer` sets the momentum buffers to 0, and PyTorch sets them to the first gradient.
    """
    ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    settings = TrainSettings(base_lr=0.5, momentum=0.9, nesterov=nesterov, weight_decay=0.0)
    optimizers = (
        make_optimizer(ours, settings),
        torch.optim.SGD(theirs.parameters(), 0.5, 0.9, nesterov=nesterov, fused=True),
    )
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        gradients = [torch.randn(p.shape, generator=generator) for p in ours.parameters()]
        for network, optimizer in zip((ours, theirs), optimizers, strict=True):
            for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_the_published_run_has_its_published_rates() -> None:
    """Compare learning rates with Codreanu et al., arXiv:1711.04291: the run on 448 nodes."""
    settings = TrainSettings(
        base_lr=4.8, warmup_lr=0.1, warmup_steps=446, steps=8040, schedule="polynomial", power=1.0
    )
    rate = learning_rate(settings, batch=14_336, steps=90)
    assert rate(0) == pytest.approx(0.1)
    assert rate(446) == pytest.approx(4.8)
    assert rate(7638) == pytest.approx(0.254, abs=5e-4)  # where the second stage begins
    assert rate(8040) == pytest.approx(0.0)


def test_a_constant_warm_up_trains_at_the_small_batch_s_rate_then_at_the_scaled_one() -> None:
    """The rate is 0.1 for five epochs, then 3.2: Goyal et al., arXiv:1706.02677, section 2.2."""
    settings = TrainSettings(
        warmup="constant", warmup_lr=0.1, base_lr=0.1, base_batch=256, schedule="step"
    )
    rate = learning_rate(settings, batch=8192, steps=156)
    assert [rate(step) for step in (0, 779, 780, 30 * 156)] == pytest.approx([0.1, 0.1, 3.2, 0.32])


@pytest.mark.parametrize(("more", "rates"), [
    # 10 steps an epoch, 6 epochs, 2 of them warm-up: the peak 0.8 for a batch of 64
    (
        {"schedule": "cosine"},
        {0: 0.04, 1: 0.08, 18: 0.76, 19: 0.8, 20: 0.8, 30: 0.4 * (1 + 0.5**0.5), 40: 0.4, 60: 0.0},
    ),
    ({"schedule": "cosine", "warmup_lr": 0.2}, {0: 0.2, 10: 0.5, 19: 0.77, 20: 0.8, 60: 0.0}),
    ({"schedule": "polynomial"}, {19: 0.8, 20: 0.8, 30: 0.45, 40: 0.2, 50: 0.05, 60: 0.0}),
    ({"schedule": "polynomial", "power": 1.0}, {20: 0.8, 30: 0.6, 40: 0.4, 59: 0.02, 60: 0.0}),
    (
        {"schedule": "step", "milestones": (3.0, 5.05)},
        {0: 0.04, 20: 0.8, 29: 0.8, 30: 0.08, 49: 0.08, 50: 0.008, 59: 0.008},
    ),
    ({"schedule": "constant"}, {0: 0.04, 19: 0.8, 20: 0.8, 59: 0.8}),
    ({"schedule": "constant", "warmup_epochs": 0.25}, {0: 0.4, 1: 0.8, 59: 0.8}),
    ({"schedule": "constant", "warmup_steps": 4}, {0: 0.2, 3: 0.8, 4: 0.8}),
    ({"schedule": "constant", "warmup_steps": 0}, {0: 0.8}),
    ({"schedule": "constant", "warmup": "constant", "warmup_lr": 0.1}, {0: 0.1, 19: 0.1, 20: 0.8}),
    (
        {"schedule": "cyclic", "cycle_epochs": 3.0, "power": 1.0, "warmup_lr": 0.2},
        {0: 0.2, 10: 0.5, 20: 0.8, 25: 0.4, 29: 0.08, 30: 0.2, 50: 0.8, 55: 0.4},
    ),
    ({"schedule": "polynomial", "steps": 30}, {20: 0.8, 25: 0.2, 30: 0.0}),
    ({"schedule": "constant", "base_batch": None}, {20: 0.2}),
])
def test_each_schedule_has_the_rates_of_its_corners(
    more: dict[str, Any], rates: dict[int, float]
) -> None:
    asked = {"base_lr": 0.2, "base_batch": 16, "epochs": 6, "warmup_epochs": 2.0, "power": 2.0}
    rate = learning_rate(TrainSettings(**asked | more), batch=64, steps=10)
    assert {step: rate(step) for step in rates} == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_sum_over_the_images_in_fp32(smoothing: float) -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.bfloat16)
    expected = 0.0
    for row, label in zip(logits.tolist(), (0, 2), strict=True):
        whole = math.log(sum(math.exp(value) for value in row))
        wanted = [smoothing / 3 + (1 - smoothing) * (n == label) for n in range(3)]
        expected += sum(share * (whole - value) for share, value in zip(wanted, row, strict=True))
    loss = summed_cross_entropy(logits, torch.tensor([0, 2]), smoothing)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_the_optimizers_get_the_settings_and_decay_weights_only() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    asked = {"base_lr": 0.5, "momentum": 0.8, "weight_decay": 0.01}
    sgd = make_optimizer(network, TrainSettings(**asked, nesterov=True))
    lars = make_optimizer(network, TrainSettings(**asked, optimizer="lars", trust=0.02))
    assert isinstance(lars, Lars)
    for optimizer in (sgd, lars):
        weights, others = optimizer.param_groups
        assert [p.ndim for p in weights["params"]] == [2]
        assert [p.ndim for p in others["params"]] == [1, 1, 1]
        assert [(g["lr"], g["momentum"]) for g in (weights, others)] == [(0.5, 0.8)] * 2
        assert (weights["weight_decay"], others["weight_decay"]) == (0.01, 0.0)
    assert [group["nesterov"] for group in sgd.param_groups] == [True, True]
    assert [group["trust"] for group in lars.param_groups] == [0.02, None]


def test_compiled_code_goes_where_the_image_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "given"))
    assert given_cache() == tmp_path / "given"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "missing"))
    assert given_cache() is None
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())  # PyTorch's own choice
    Path(default_cache_dir()).mkdir(exist_ok=True)
    assert given_cache() is None
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert given_cache() is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's own modules use it
def test_compiled_code_is_kept_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "default"))
    assert cache_dir() == str(tmp_path / "default")  # PyTorch asks itself before we compile
    compile_network(torch.nn.Linear(1, 1), "default", tmp_path / "cache")
    assert cache_dir() == str(tmp_path / "cache")
