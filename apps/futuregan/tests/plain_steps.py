"""Reference implementation of one training step, and trainings that make single steps.

The reference step computes gradients with PyTorch's autograd, and each loss, penalty and average
with an explicit formula. It updates the weights by plain gradient descent, because Adam would hide
a gradient of the wrong size.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from futuregan import method, train
from futuregan.clips import Batch
from futuregan.model import Discriminator, Generator, Shape
from futuregan.settings import TrainSettings
from futuregan.train import Training
from trainkit.torch.strategy import TorchStrategy

PAST, FUTURE = 2, 3
SHAPE = Shape(size=8, past=PAST, future=FUTURE, channels=3, width=3)
PLACES = {4: 0, 8: 1}
"""Side of the frames in pixels -> index of the highest block of the networks that is used.

The networks grow: the block 0 is for the smallest frames, and each further block doubles the side.
"""


class OneStep:
    """A stand-in for a training session that records the arguments of each finished step."""

    def __init__(self, *_: object) -> None:
        self.progress = SimpleNamespace(epoch=0, step=0, steps_per_epoch=1, steps_done=0)
        self.stop_asked = False
        self.told: list[tuple[int, list[float], dict[str, float]]] = []

    def next_batch(self, batches: Iterator[Batch]) -> Batch:
        return next(batches)

    def finish_step(self, samples: int, sums: Any, rates: dict[str, float]) -> None:
        self.told.append((samples, sums.result(), rates))


class Descent:
    """A gradient descent optimizer: it subtracts learning rate times gradient from the weights."""

    def __init__(self, network: nn.Module) -> None:
        self.param_groups = [{"params": list(network.parameters()), "lr": 1.0}]

    @torch.no_grad()
    def step(self) -> None:
        for weight in self.param_groups[0]["params"]:
            if weight.grad is not None:
                weight.sub_(self.param_groups[0]["lr"] * weight.grad)

    def zero_grad(self) -> None:
        for weight in self.param_groups[0]["params"]:
            weight.grad = None


@pytest.fixture
def by_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all trainings use plain gradient descent, and replace their session by a stand-in.

    The optimizer is `Descent`. The session is `OneStep`, which only records each finished step.
    """
    monkeypatch.setattr(train, "Session", OneStep)
    monkeypatch.setattr(method, "optimizer", lambda network, _: Descent(network))


def batch(counts: list[int], rank: int = 0, size: int = 8) -> Batch:
    """Return the share of `rank` in a batch; rank i has `counts[i]` clips."""
    draw = np.random.default_rng(11)
    clips = draw.integers(0, 256, (sum(counts), 3, PAST + FUTURE, size, size), np.uint8)
    between = draw.random(sum(counts), np.float32)
    mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    return Batch(torch.from_numpy(clips[mine]), torch.from_numpy(between[mine]), sum(counts))


def training(settings: TrainSettings, strategy: TorchStrategy | None = None) -> Training:
    """Return a training whose networks have the same random weights in each call.

    The calling test must use the fixture `by_slopes`.
    """
    strategy = strategy or TorchStrategy()
    plan = SimpleNamespace(steps=4)
    data = SimpleNamespace(shape=SHAPE, train=SimpleNamespace(plan=lambda _: plan))
    out: Any = SimpleNamespace()
    found = Training(settings, strategy, method.growth(settings), data, out, out)  # type: ignore[arg-type]
    for seed, network in enumerate((found.generator, found.discriminator, found.trained.average)):
        if network is not None:
            scatter(network, seed)
    return found


def scatter(network: nn.Module, seed: int) -> None:
    """Set the weights of a network to random values; biases get smaller values."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in network.parameters():
            one.copy_(torch.randn(one.shape, generator=draw) * (0.1 if one.ndim == 1 else 1))


@dataclass
class Moved:
    """The networks after one reference step, and sums over the clips of the step.

    Attributes:
        generator: the generator.
        discriminator: the discriminator.
        average: the moving average of the generator.
        sums: sums of discriminator loss, generator loss, difference of the scores of real and fake
            clip, gradient penalty, and mean squared error, in this order.
    """

    generator: Generator
    discriminator: Discriminator
    average: Generator
    sums: list[float]


def seen(clips: Tensor, size: int, fade: float) -> Tensor:
    """Return clips as input of the networks at one growth stage, (n, C, T, size, size)."""
    values = clips.double() * 2 / 255 - 1
    while values.shape[-1] > size:
        values = quarters(values)
    coarse = quarters(values).repeat_interleave(2, 3).repeat_interleave(2, 4)
    return (fade * values + (1 - fade) * coarse).float()


def quarters(values: Tensor) -> Tensor:
    return sum(values[..., y::2, x::2] for y in (0, 1) for x in (0, 1)) / 4  # type: ignore[return-value]


def losses(kind: str, real: Tensor, made: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of discriminator and generator for each pair of scores, each (n,)."""
    if kind == "wgan-gp":
        return made - real, -made
    if kind == "lsgan":
        return 0.5 * (real - 1) ** 2 + 0.5 * made**2, 0.5 * (made - 1) ** 2
    true, false = (1 / (1 + torch.exp(-one)) for one in (real, made))
    return -torch.log(true) - torch.log(1 - false), -torch.log(false)


def step(
    began: Training, one: Batch, size: int, fade: float, rate: float, *, judged: bool,
    keep: float,
) -> Moved:
    """Make one reference step from the training `began`, and return the result.

    The networks of `began` do not change.
    """
    settings = began.settings
    generator, critic = copy.deepcopy((began.generator, began.discriminator))
    average = copy.deepcopy(began.trained.average or began.generator)
    real = seen(one.clips, size, fade)
    past, right = real[:, :, :PAST], real[:, :, PAST:]
    future = generator(past, fade)
    told = [0.0] * 5
    if judged:
        false = torch.cat([past, future], 2).detach()
        cost, told[2], told[3] = criticised(critic, real, false, one.interpolation, settings, fade)
        told[0] = cost.sum().item()
        descend(critic, critic.active(PLACES[size]), cost.mean(), rate)
    error = ((future - right) ** 2).sum((1, 2, 3, 4)) / right[0].numel()
    cost = settings.reconstruction * error
    if judged:
        scores = critic(torch.cat([past, future], 2), fade)[:, 0]
        cost = cost + losses(settings.loss, scores, scores)[1]
    told[1], told[4] = cost.sum().item(), error.sum().item()
    active = generator.active(PLACES[size])
    descend(generator, active, cost.mean(), rate)
    with torch.no_grad():
        for old, new in zip(average.active(PLACES[size]), active, strict=True):
            old.copy_(keep * old + (1 - keep) * new)
    return Moved(generator, critic, average, told)


def criticised(
    critic: Discriminator, real: Tensor, false: Tensor, between: Tensor, settings: TrainSettings,
    fade: float,
) -> tuple[Tensor, float, float]:
    """Return the discriminator loss of each clip, (n,), and the summed distances and penalties.

    The distance is the score of the real clip minus the score of the fake clip.
    """
    true_score, false_score = critic(real, fade)[:, 0], critic(false, fade)[:, 0]
    cost = losses(settings.loss, true_score, false_score)[0]
    distance = (true_score - false_score).sum().item()
    if settings.loss != "wgan-gp":
        return cost, distance, 0.0
    places = between[:, None, None, None, None]
    points = ((1 - places) * real + places * false).requires_grad_()
    (slopes,) = torch.autograd.grad(critic(points, fade).sum(), points, create_graph=True)
    penalty = ((slopes**2).sum((1, 2, 3, 4)) ** 0.5 - 1) ** 2
    whole = cost + settings.penalty * penalty + settings.drift * true_score**2
    return whole, distance, penalty.sum().item()


def descend(network: nn.Module, weights: list[nn.Parameter], cost: Tensor, rate: float) -> None:
    slopes = torch.autograd.grad(cost, weights)
    with torch.no_grad():
        for weight, slope in zip(weights, slopes, strict=True):
            weight.sub_(rate * slope)


def apart(found: nn.Module, expected: nn.Module, began: nn.Module) -> float:
    """Return the distance between found and expected weights, divided by their expected change."""
    @torch.no_grad()
    def distance(one: nn.Module, other: nn.Module) -> float:
        pairs = zip(one.parameters(), other.parameters(), strict=True)
        return math.sqrt(sum(float((a - b).double().square().sum()) for a, b in pairs))

    return distance(found, expected) / max(distance(began, expected), 1e-9)
