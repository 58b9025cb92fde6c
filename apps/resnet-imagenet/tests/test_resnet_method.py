"""The optimizer and the rates of the published runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from resnet_imagenet.method import compile_network, learning_rate, make_optimizer
from resnet_imagenet.settings import TrainSettings


@pytest.fixture
def nothing_is_zero_by_chance() -> Iterator[None]:
    """Have PyTorch fill memory that is not initialised with NaN."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nothing_is_zero_by_chance")
def test_a_first_step_skipped_for_an_overflow_leaves_nothing_in_the_momentum() -> None:
    """PyTorch's fused SGD allocates the momentum in its first step, skipped or not."""
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


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_momentum_begins_with_the_first_gradient(nesterov: bool) -> None:
    """As in PyTorch without `make_optimizer`, to the bit."""
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
    """Codreanu et al., arXiv:1711.04291; figures in the recipe of the 448 nodes."""
    settings = TrainSettings(
        base_lr=4.8, warmup_lr=0.1, warmup_steps=446, steps=8040, schedule="polynomial", power=1.0
    )
    rate = learning_rate(settings, batch=14_336, steps=90)
    assert rate(0) == pytest.approx(0.1)
    assert rate(446) == pytest.approx(4.8)
    assert rate(7638) == pytest.approx(0.254, abs=5e-4)  # where the second stage begins
    assert rate(8040) == pytest.approx(0.0)


def test_a_constant_warm_up_trains_at_the_small_batch_s_rate_then_at_the_scaled_one() -> None:
    """Goyal et al., arXiv:1706.02677, section 2.2: 0.1 for five epochs, then 3.2."""
    settings = TrainSettings(
        warmup="constant", warmup_lr=0.1, base_lr=0.1, base_batch=256, schedule="step"
    )
    rate = learning_rate(settings, batch=8192, steps=156)
    assert [rate(step) for step in (0, 779, 780, 30 * 156)] == pytest.approx([0.1, 0.1, 3.2, 0.32])


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's own modules use it
def test_compiled_code_is_kept_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "default"))
    assert cache_dir() == str(tmp_path / "default")  # PyTorch asks itself before we compile
    compile_network(torch.nn.Linear(1, 1), "default", tmp_path / "cache")
    assert cache_dir() == str(tmp_path / "cache")
