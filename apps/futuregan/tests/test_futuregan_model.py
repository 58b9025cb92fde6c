"""The networks have the layers of the paper, grow continuously, and work on any number of ranks."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from thread_ranks import on_ranks
from torch import Tensor

from futuregan import model
from futuregan.growth import batch_sizes
from futuregan.minibatch_stddev import MinibatchStddev
from futuregan.model import Discriminator, EqualizedLayer, Generator, Shape
from trainkit.ranks import Ranks
from trainkit.torch.strategy import TorchStrategy

ALONE = TorchStrategy()
SMALL = Shape(size=16, past=3, future=2, channels=1, width=4)


def spread(group: int, micro_batch_sizes: str, strategy: TorchStrategy = ALONE) -> MinibatchStddev:
    return MinibatchStddev(group, batch_sizes(micro_batch_sizes), strategy)


def critic(shape: Shape = SMALL, strategy: TorchStrategy = ALONE, group: int = 4,
           part: int = 4) -> Discriminator:
    torch.manual_seed(1)
    return Discriminator(shape, spread(group, str(part), strategy))


def clips(count: int, frames: int, size: int = 16, channels: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    return torch.rand(count, channels, frames, size, size, generator=draw) * 2 - 1


@pytest.mark.parametrize(("size", "of_generator", "of_discriminator"), [
    (4, 17_307_139, 57_426_945), (32, 66_072_067, 81_809_409),
    (64, 70_659_075, 84_102_913), (128, 71_805_699, 84_676_225),
])
def test_the_networks_are_as_large_as_the_layers_of_the_paper_make_them(
    size: int, of_generator: int, of_discriminator: int
) -> None:
    with torch.device("meta"):
        pair = Generator(Shape()), Discriminator(Shape(), spread(4, "8"))
    level = Shape().level(size)
    counts = [sum(one.numel() for one in network.active(level)) for network in pair]
    assert counts == [of_generator, of_discriminator]


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("shape", [SMALL, dataclasses.replace(SMALL, skip=5)])
def test_a_level_uses_its_own_layers_only(size: int, shape: Shape) -> None:
    generator, level = Generator(shape), SMALL.level(size)
    generator(clips(2, 3, size)).sum().backward()
    assert {p for p in generator.parameters() if p.grad is not None} == set(generator.active(level))
    discriminator = critic()
    discriminator(clips(2, 5, size)).sum().backward()
    used = {p for p in discriminator.parameters() if p.grad is not None}
    assert used == set(discriminator.active(level))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("skip", [0, 5])
def test_growth_begins_with_what_the_smaller_network_makes(residual: bool, skip: int) -> None:
    generator = Generator(Shape(16, 3, 2, 1, 4, residual, skip=skip))
    for layer in generator.outputs:
        torch.nn.init.normal_(layer.weight)
    past = clips(2, 3)
    small = generator(model.downsample(past))
    begun = generator(past, 0.0)
    assert begun.shape == (2, 1, 2, 16, 16)
    last = past[:, :, -1:] if residual else torch.zeros(())
    coarse = model.upsample(model.downsample(past)[:, :, -1:]) if residual else torch.zeros(())
    assert torch.allclose(begun - last, model.upsample(small) - coarse, atol=1e-6)
    assert not torch.allclose(begun, generator(past, 0.5), atol=1e-2)


def test_what_the_encoder_had_comes_to_the_decoder_from_all_frames_of_the_past() -> None:
    """Through the skip connections, a predicted pixel depends on all input frames.

    The weights between encoder and decoder are 0, so that only skip connections have an effect.
    """
    generator = Generator(Shape(8, 3, 2, 1, 4, skip=5))
    for one in generator.middle.parameters():
        torch.nn.init.zeros_(one)
    past = clips(1, 3, 8).requires_grad_()
    (slopes,) = torch.autograd.grad(generator(past)[0, 0, 1, 4, 4], past)
    assert (slopes[0, 0].abs().sum((1, 2)) > 0).all()
    seen = slopes[0, 0].abs().sum(0).nonzero()
    assert (seen.min().item(), seen.max().item()) == (4 - 2, 4 + 2)  # two cubes, one on each side


def test_a_generator_of_changes_begins_with_none() -> None:
    past = clips(2, 3)
    made = Generator(Shape(16, 3, 2, 1, 4, residual=True))(past)
    assert torch.equal(made, past[:, :, -1:].expand_as(made))


def test_the_discriminator_grows_without_a_jump() -> None:
    discriminator, clip = critic(), clips(2, 5)
    before = discriminator(model.downsample(clip))
    assert torch.allclose(discriminator(clip, 0.0), before, atol=1e-6)
    assert not torch.allclose(discriminator(clip, 1.0), before, atol=1e-3)


def test_the_order_in_memory_changes_nothing_but_rounding() -> None:
    """Scores and gradients are nearly equal in both memory formats of PyTorch.

    The comparison includes the second-order gradients of a gradient penalty.
    """
    found = []
    for layout in (torch.contiguous_format, torch.channels_last_3d):
        torch.manual_seed(1)
        pair = Generator(SMALL, layout), Discriminator(SMALL, spread(4, "2"), layout)
        assert pair[0].blocks[0][1][0].weight.is_contiguous(memory_format=layout)
        made = torch.cat([clips(2, 3), pair[0](clips(2, 3), 0.5)], 2)
        scores = pair[1](made, 0.5)
        (slopes,) = torch.autograd.grad(scores.sum(), made, create_graph=True)
        (scores.sum() + slopes.square().sum()).backward()
        found.append([scores, *(one.grad for network in pair for one in network.active(2))])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_values_keep_their_size_through_layers_of_any_width() -> None:
    torch.manual_seed(0)
    for shape in ((64, 32, 3, 3, 3), (16, 128, 1, 1, 1)):
        layer = EqualizedLayer(shape, gain=1, padding=shape[2] // 2)
        found = layer(torch.randn(4, shape[1], 6, 8, 8))[:, :, 1:-1, 1:-1, 1:-1]
        assert found.std().item() == pytest.approx(1, rel=0.1)


def test_the_scale_is_in_the_state_and_the_weights_are_of_deviation_1() -> None:
    layer = EqualizedLayer((8, 4, 3, 3, 3))
    assert layer.state_dict()["scale"].item() == pytest.approx(math.sqrt(2 / (4 * 27)))
    torch.manual_seed(0)
    assert EqualizedLayer((64, 64, 3, 3, 3)).weight.std().item() == pytest.approx(1, rel=0.01)


def test_features_of_a_pixel_have_a_mean_square_of_1() -> None:
    found = model.LeakyPixelNorm()(torch.randn(2, 8, 3, 4, 4) * 50)
    assert torch.allclose(found.square().mean(1), torch.ones(2, 3, 4, 4), atol=1e-4)


def test_the_deviation_is_that_of_each_batch_of_its_own() -> None:
    values = torch.randn(4, 2, 1, 3, 3)
    found = spread(4, "4")(torch.cat([values, 3 * values]), 2, 4)
    assert found.shape == (8, 3, 1, 3, 3)
    expected = values.std(0, correction=0).mean()
    assert torch.allclose(found[:4, 2], expected.expand(4, 1, 3, 3), atol=1e-5)
    assert torch.allclose(found[4:, 2], 3 * expected.expand(4, 1, 3, 3), atol=1e-5)


@pytest.mark.parametrize("clips", [1, 3, 5, 8, 9, 12])
@pytest.mark.parametrize(("group", "most"), [(4, 4), (4, 7), (2, 4), (3, 8), (1, 1)])
def test_groups_are_the_same_whether_a_batch_comes_whole_or_in_parts(
    clips: int, group: int, most: int
) -> None:
    """The layer MinibatchStddev appends the same values to micro-batches as to the whole batch.

    The cases include the last batch of an epoch, which may have fewer clips.
    """
    values = torch.randn(clips, 2, 1, 3, 3)
    in_parts = spread(group, str(most))
    sizes = in_parts.split_sizes(clips, 12, 8)
    assert max(sizes) <= most
    whole = spread(group, "12")(values, 1, 8)
    assert torch.allclose(whole, torch.cat([in_parts(part, 1, 8) for part in values.split(sizes)]))


def test_ranks_go_through_as_many_parts_where_a_group_is_of_all_of_them() -> None:
    """All ranks have the same number of micro-batches if a group has clips of all ranks.

    MinibatchStddev computes a standard deviation over the clips of each group. A group has clips of
    all ranks only if a micro-batch is smaller than a group; otherwise, it has clips of one rank.
    """
    two = spread(4, "4:8,64:1", TorchStrategy(Ranks(rank=0, size=2)))
    assert [two.is_global(size) for size in (4, 32, 64, 128)] == [False, False, True, True]
    assert not spread(4, "1").is_global(64)
    assert two.split_sizes(2, 3, 64) == [1, 1, 0]
    assert two.split_sizes(8, 8, 32) == [8]


WEIGHTS = critic().state_dict()


def scores_and_slopes(strategy: TorchStrategy) -> tuple[Tensor, Tensor]:
    """Return the scores of this rank's clips, and the mean gradient of a penalty over all ranks.

    The ranks divide four clips. The gradient is taken with respect to the weights of one layer.
    """
    discriminator = critic(strategy=strategy, part=4 // strategy.size)
    discriminator.load_state_dict(WEIGHTS)  # ranks that are threads share the random numbers
    mine = clips(4, 5).chunk(strategy.size)[strategy.rank].requires_grad_()
    scores = discriminator(mine, 0.5)
    (slopes,) = torch.autograd.grad(scores.sum(), mine, create_graph=True)
    penalty = (slopes.flatten(1).norm(dim=1) - 1).square().mean()
    penalty.backward()
    with strategy.averaged(discriminator):
        gradient = discriminator.encoder.inputs[2][0].weight.grad
    assert gradient is not None
    return scores.detach(), gradient


@pytest.mark.parametrize("ranks", [2, 4])
def test_clips_alone_on_their_ranks_differ_from_those_of_the_others(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few clips per rank, scores and penalty gradients are the same as in one process."""
    expected, gradient = scores_and_slopes(ALONE)
    found = on_ranks(ranks, scores_and_slopes, monkeypatch)
    assert torch.allclose(torch.cat([scores for scores, _ in found]), expected, atol=1e-5)
    for _, own in found:
        assert torch.allclose(own, gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("frames", [1, 2, 3, 4])
def test_gradients_in_bf16_are_those_of_fp32_for_any_number_of_frames(frames: int) -> None:
    torch.manual_seed(1)
    layer = model.conv3x3x3(8, 8)
    values = torch.randn(16, 8, frames, 8, 8).to(memory_format=torch.channels_last_3d)

    def gradient() -> Tensor:
        layer.zero_grad()
        layer(values).float().square().sum().backward()
        assert layer.weight.grad is not None
        return layer.weight.grad.clone()

    expected = gradient()
    for _ in range(5):
        # Freed memory is used again: who reads it before writing gets these.
        for size in range(6, 20):
            torch.full((1 << size,), math.nan)
        with torch.autocast("cpu", torch.bfloat16):
            found = gradient()
        assert (found - expected).abs().max() < 0.02 * expected.abs().max()
