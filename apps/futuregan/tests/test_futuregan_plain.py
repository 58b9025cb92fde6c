"""The networks match their NumPy reference for equal weights, at all levels and fade factors."""

from __future__ import annotations

import math

import numpy as np
import plain_networks as plain
import pytest
import torch
from thread_ranks import on_ranks
from torch import Tensor, nn

from futuregan import model
from futuregan.growth import batch_sizes
from futuregan.minibatch_stddev import MinibatchStddev
from futuregan.model import Discriminator, EqualizedLayer, Generator, Shape
from trainkit.torch.strategy import TorchStrategy

ALONE = TorchStrategy()


def drawn(network: nn.Module, seed: int) -> dict[str, plain.Values]:
    """Set all weights and biases of a network to random values, and return them by name."""
    draw = torch.Generator().manual_seed(seed)
    for one in network.parameters():
        torch.nn.init.normal_(one, 0.1 if one.ndim == 1 else 0.0, generator=draw)
    return {name: one.detach().double().numpy() for name, one in network.named_parameters()}


def clips(count: int, frames: int, size: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, frames, size, size, generator=draw) * 2 - 1


@pytest.mark.parametrize(("size", "fade"), [
    (4, 1.0), (8, 0.25), (8, 1.0), (16, 0.25), (16, 0.75), (16, 1.0),
])
@pytest.mark.parametrize(("residual", "skip"), [(False, 0), (True, 3), (False, 5)])
def test_the_generator_makes_what_numpy_makes(
    size: int, fade: float, residual: bool, skip: int
) -> None:
    generator = Generator(Shape(16, 3, 2, 3, 4, residual, skip=skip))
    weights, past = drawn(generator, 1), clips(2, 3, size)
    expected = plain.generated(past.double().numpy(), weights, fade, residual=residual)
    found = generator(past, fade).detach().numpy()
    assert found.shape == (2, 3, 2, size, size)
    assert found == pytest.approx(expected, abs=2e-5, rel=1e-4)


@pytest.mark.parametrize(("size", "fade"), [
    (4, 1.0), (8, 0.25), (8, 1.0), (16, 0.25), (16, 0.75), (16, 1.0),
])
@pytest.mark.parametrize("group", [2, 4])
def test_the_discriminator_makes_what_numpy_makes(size: int, fade: float, group: int) -> None:
    """The discriminator's scores equal the NumPy reference for two batches in one call.

    Each batch has five clips. No group of the minibatch standard deviation contains clips of both
    batches.
    """
    critic = Discriminator(Shape(16, 3, 2, 3, 4), MinibatchStddev(group, batch_sizes("8"), ALONE))
    weights = drawn(critic, 2)
    batches = [clips(5, 5, size, seed) * scale for seed, scale in ((1, 1), (2, 0.3))]
    expected = plain.judged([one.double().numpy() for one in batches], weights, fade, group=group)
    found = critic(torch.cat(batches), fade, 2).detach()
    assert found.shape == (10, 1)
    assert found[:, 0].numpy() == pytest.approx(expected, abs=2e-5, rel=1e-4)


def test_the_networks_of_larger_frames_in_their_middle_make_what_numpy_makes() -> None:
    shape = Shape(16, 2, 3, 3, 4, base=8, skip=2)
    generator = Generator(shape)
    critic = Discriminator(shape, MinibatchStddev(4, batch_sizes("8"), ALONE))
    assert (shape.levels, shape.level(8), shape.level(16)) == (2, 0, 1)
    assert not [name for name in generator.state_dict() if "inputs.2" in name]
    weights, past = drawn(generator, 3), clips(2, 2, 16)
    expected = plain.generated(past.double().numpy(), weights, 0.5, base=8)
    assert generator(past, 0.5).detach().numpy() == pytest.approx(expected, abs=2e-5, rel=1e-4)
    weights, whole = drawn(critic, 4), clips(3, 5, 16)
    expected = plain.judged([whole.double().numpy()], weights, 0.5, group=4, base=8)
    assert critic(whole, 0.5).detach()[:, 0].numpy() == pytest.approx(expected, abs=2e-5, rel=1e-4)


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("gain", [1.0, math.sqrt(2)])
def test_a_layer_is_scaled_once_whether_it_or_its_inputs_are_the_larger(
    count: int, gain: float
) -> None:
    layer = EqualizedLayer((3, 5), gain=gain)
    torch.nn.init.normal_(layer.bias)
    values = torch.randn(count, 5)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = values.numpy() @ weight.T * gain / math.sqrt(5) + bias
    assert layer(values).detach().numpy() == pytest.approx(expected, abs=1e-5)


def test_all_weights_begin_as_normal_numbers_and_all_biases_at_0() -> None:
    """Weights begin with mean 0 and standard deviation 1, biases with 0.

    Only the output layers of a residual generator have initial weights of 0.
    """
    torch.manual_seed(3)
    shape = Shape(16, 3, 2, 3, 32, residual=True, skip=4)
    stddev = MinibatchStddev(4, batch_sizes("8"), ALONE)
    for network in (Generator(shape), Discriminator(shape, stddev)):
        for name, one in network.named_parameters():
            zero = name.endswith("bias") or name.startswith("outputs.")
            mean, wide = one.mean().item(), one.std(correction=0).item()
            near = 6 / math.sqrt(one.numel())  # six deviations of a mean of so many
            assert (mean, wide) == pytest.approx((0, 0 if zero else 1), abs=0 if zero else near)


def test_frames_are_made_smaller_by_their_mean_and_larger_by_repetition() -> None:
    clip = clips(1, 2, 8)
    values = clip.double().numpy()
    assert model.downsample(clip).numpy() == pytest.approx(plain.pooled(values), abs=1e-6)
    assert model.downsample(clip, 4).numpy() == pytest.approx(
        plain.pooled(plain.pooled(values)), abs=1e-6)
    assert np.array_equal(model.upsample(clip).numpy(), plain.doubled(clip.numpy()))


@pytest.mark.parametrize("group", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_groups_of_a_rank_differ_as_numpy_says(group: int, count: int) -> None:
    values = torch.randn(count, 3, 2, 4, 4) + 2
    found = MinibatchStddev(group, batch_sizes("16"), ALONE)(values, 1, 8)
    assert torch.equal(found[:, :3], values)
    expected = plain.deviations(values.double().numpy(), group)
    for at, one in enumerate(expected):
        assert found[at, 3].numpy() == pytest.approx(np.full((2, 4, 4), one), abs=1e-5)


PARTS = ([2, 1], [1, 1, 1], [3, 0])
"""Three clips, divided over two or three ranks: number of clips on each rank."""
VALUES = torch.randn(3, 2, 1, 4, 4, generator=torch.Generator().manual_seed(5)).double()
TURNED = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(6)).double()


def bent(added: Tensor, values: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
    """Return a first-order and a second-order gradient with respect to `values`.

    They are derivatives of `added`, the feature that the layer MinibatchStddev computes from the
    clips `values` and appends to them. The first is the gradient g of the sum of
    `added` * `turned`, the second is the gradient of the sum of g * g * `values`.

    Args:
        added: the appended feature.
        values: the clips.
        turned: weights of the elements of `added`.
    """
    (slopes,) = torch.autograd.grad((added * turned).sum(), values, create_graph=True)
    (again,) = torch.autograd.grad((slopes * slopes * values).sum(), values)
    return slopes.detach(), again


@pytest.mark.parametrize("parts", PARTS)
def test_over_ranks_the_deviation_and_its_slopes_are_those_of_all_clips(
    parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On several ranks, the minibatch standard deviation is that of all clips in one process.

    Its first-order and second-order gradients are equal, too. In some cases, the ranks have
    different numbers of clips.
    """
    alone = VALUES.clone().requires_grad_()
    deviation = alone.sub(alone.mean(0)).square().mean(0).add(1e-8).sqrt().mean()
    assert deviation.item() == pytest.approx(plain.deviations(VALUES.numpy(), 4)[0])
    slopes, again = bent(deviation.expand_as(TURNED), alone, TURNED)

    def work(strategy: TorchStrategy) -> tuple[Tensor, Tensor, Tensor]:
        mine = VALUES.split(parts)[strategy.rank].clone().requires_grad_()
        spread = MinibatchStddev(4, batch_sizes("3"), strategy)
        found = spread(mine, 1, 4)[:, 2]
        # Each rank's gradient is that of the mean over the ranks, times their number.
        return (found.detach(), *bent(found, mine, TURNED.split(parts)[strategy.rank]))

    found = on_ranks(len(parts), work, monkeypatch)
    whole = [torch.cat([one[at] for one in found]) for at in range(3)]
    assert whole[0].numpy() == pytest.approx(np.full((3, 1, 4, 4), deviation.item()), abs=1e-6)
    assert torch.allclose(whole[1], slopes, rtol=1e-4, atol=1e-7)
    assert torch.allclose(whole[2], again, rtol=1e-4, atol=1e-7)
