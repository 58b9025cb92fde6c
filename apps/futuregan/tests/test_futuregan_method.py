"""Tests of the formulas of the method, against values that are computed in another way."""

from __future__ import annotations

import contextlib
import dataclasses
import math

import pytest
import torch
from torch import Tensor

from futuregan import method
from futuregan.growth import Growth, GrowthStage, batch_sizes
from futuregan.model import Generator, Shape
from futuregan.settings import TrainSettings
from trainkit.exits import ArgumentError

SCORES = torch.tensor([[2.0], [-1.0]]), torch.tensor([[0.5], [3.0]])


def stage(size: int, fade: float = 1.0, grown: int = 0) -> GrowthStage:
    found = Growth(4, 4, 0, 1, None, batch_sizes("2")).stage(0, 0, 1)
    return dataclasses.replace(found, size=size, fade=fade, grown=grown)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize(("loss", "of_critic", "of_generator"), [
    ("wgan-gp", [0.5 - 2, 3 + 1], [-0.5, -3]),
    ("lsgan", [(1 + 0.25) / 2, (4 + 9) / 2], [0.125, 2]),
    ("gan", [-math.log(sigmoid(2)) - math.log(1 - sigmoid(0.5)),
             -math.log(sigmoid(-1)) - math.log(1 - sigmoid(3))],
     [-math.log(sigmoid(0.5)), -math.log(sigmoid(3))]),
])
def test_losses_are_those_of_their_papers(
    loss: str, of_critic: list[float], of_generator: list[float]
) -> None:
    real, made = SCORES
    assert method.critic_losses(loss, real, made).tolist() == pytest.approx(of_critic)
    assert method.generator_losses(loss, made).tolist() == pytest.approx(of_generator)


def test_the_penalty_is_that_of_the_slope_between_two_clips() -> None:
    real, made = torch.zeros(2, 1, 3, 2, 2), torch.ones(2, 1, 3, 2, 2)
    weight = torch.full((), 0.5, requires_grad=True)

    def score(points: Tensor) -> Tensor:
        return weight * points.square().flatten(1).sum(1, keepdim=True)

    between = torch.tensor([0.25, 1.0])
    found = method.gradient_penalty(score, real, made, between)
    # The slope at a point of twelve equal values v is 2 weight v sqrt(12).
    slopes = [2 * 0.5 * v * math.sqrt(12) for v in (0.25, 1.0)]
    assert found.tolist() == pytest.approx([(slope - 1) ** 2 for slope in slopes])
    (grown,) = torch.autograd.grad(found.sum(), weight)
    assert grown.item() == pytest.approx(sum(2 * (s - 1) * s / 0.5 for s in slopes))


def test_frames_are_made_smaller_and_lie_between_minus_and_plus_one() -> None:
    clips = torch.tensor([0, 255, 255, 0] * 4, dtype=torch.uint8).view(1, 1, 1, 4, 4)
    assert method.prepare_clips(clips, stage(4)).unique().tolist() == [-1, 1]
    assert method.prepare_clips(clips, stage(2)).unique().tolist() == [0]


def test_what_is_real_is_faded_in_too() -> None:
    clips = torch.arange(16, dtype=torch.uint8).view(1, 1, 1, 4, 4) * 17
    whole = clips.float() / 127.5 - 1
    coarse = whole.view(2, 2, 2, 2).mean((1, 3))
    coarse = coarse.repeat_interleave(2, 0).repeat_interleave(2, 1).view_as(whole)
    found = method.prepare_clips(clips, stage(4, fade=0.25))
    assert torch.allclose(found, 0.75 * coarse + 0.25 * whole)


@pytest.mark.parametrize(("micro", "batches", "ranks", "said"), [
    (4, "8", 1, None), (1, "1", 4, None), (None, "2", 1, None), (2, "4", 2, None),
    (2, "8", 1, "standard deviation of 2 clips instead of 4"),
    (1, "4:8,16:2", 1, "standard deviation of 1 clips instead of 4"),
    (1, "4", 2, "standard deviation of 2 clips instead of 4.*use 2 or more"),
])
def test_parts_of_a_batch_hold_whole_groups_or_are_refused(
    micro: int | None, batches: str, ranks: int, said: str | None
) -> None:
    settings = TrainSettings(
        size="16", micro_batch=micro, batch_size_per_rank=batch_sizes(batches)
    )
    with contextlib.nullcontext() if said is None else pytest.raises(ArgumentError, match=said):
        method.check_groups(settings, method.growth(settings), ranks)


def test_the_rate_falls_with_each_growth() -> None:
    settings = TrainSettings(base_lr=0.002, lr_decay=0.5)
    rates = [method.learning_rate(settings, stage(4, grown=grown)) for grown in range(3)]
    assert rates == [0.002, 0.001, 0.0005]


def test_the_average_follows_fast_at_first_and_only_layers_in_use() -> None:
    shape = Shape(8, 2, 2, 1, 4)
    average, generator = Generator(shape), Generator(shape)
    first = [one.detach().clone() for one in average.parameters()]
    in_use = {id(one) for one in average.active(0)}
    method.update_ema(average, generator, 0.9, 8, 0)  # (1 + 8) / (10 + 8) = 0.5
    pairs = zip(average.parameters(), generator.parameters(), first, strict=True)
    for now, new, old in pairs:
        assert torch.allclose(now, (new + old) / 2 if id(now) in in_use else old, atol=1e-6)
    before = average.blocks[0][0][0].weight.detach().clone()
    method.update_ema(average, generator, 0.9, 10_000, 1)
    after, new = average.blocks[0][0][0].weight, generator.blocks[0][0][0].weight
    assert torch.allclose(after, 0.9 * before + 0.1 * new, atol=1e-6)
