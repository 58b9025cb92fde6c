"""The training loop matches a reference loop without micro-batches and ranks."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from futuregan import __main__ as program
from futuregan import inputs, method
from futuregan.model import Discriminator, Generator
from futuregan.settings import TrainSettings
from trainkit import checkpoint
from trainkit.testing import reading
from trainkit.torch.strategy import TorchStrategy

State = dict[str, Tensor]

STEPS = 10  # of 9 clips: 3 at 8 pixels, 5 that fade in 16 pixels, and 2 more
WORDS = {
    "past": 3, "future": 3, "size": 16, "first-size": 8, "width": 4, "precision": "fp32",
    "device": "cpu", "stride": 4, "transition-epochs": 1, "stabilization-epochs": 1, "epochs": 4,
    "batch-size-per-rank": "4:3,16:2", "max-steps": STEPS, "threads": 1, "eval-every": 0,
    "base-lr": 0.0005, "reconstruction": 5, "drift": 0.01, "ema-decay": 0.8, "lr-decay": 0.5,
}
SCHEDULE = [(0, 8, 1.0, 3, 3), (1, 16, None, 2, 5), (2, 16, 1.0, 2, 5)]
"""Epoch, side of the frames in pixels, fade factor (None: rising), batch size, number of steps."""


def reference(
    data: Path, group: int, alone: int
) -> tuple[list[State], Generator, Generator, Discriminator]:
    """Train with a reference loop, which uses only the networks and the batches of the app.

    Return the initial states of the three networks, and then the trained networks: generator,
    moving average of the generator, and discriminator.
    """
    settings = TrainSettings(
        data=data, past=3, future=3, size="16", first_size="8", width=4, stride=4, seed=17,
        device="cpu", precision="fp32", stddev_group=group,
    )
    found = inputs.open_inputs(settings, TorchStrategy())
    made, critic = method.networks(settings, found.shape, TorchStrategy())
    first = [{name: value.clone() for name, value in one.state_dict().items()}
             for one in (made, made, critic)]
    average = dict(first[0])
    adams = [torch.optim.Adam(one.parameters(), lr=1, betas=(0.0, 0.99), eps=1e-8, foreach=False)
             for one in (made, critic)]
    done = 0
    for epoch, side, fade, batch, steps in SCHEDULE:
        for step, one in enumerate(found.train.epoch(epoch, 0, batch)):
            if done == STEPS:
                break
            share = fade or (step + 1) / steps
            for adam in adams:
                adam.param_groups[0]["lr"] = 0.0005 * (0.5 if side == 16 else 1)
            real = frames(one.clips, side, share)
            if epoch >= alone:
                critic_step(made, critic, adams, real, one.interpolation, share)
            generator_step(made, critic, adams, real, share, epoch >= alone)
            level = [name for name, value in made.named_parameters() if value.grad is not None]
            keep = min(0.8, (1 + done) / (10 + done))
            done += 1
            now = made.state_dict()
            for name in level:
                average[name] = keep * average[name] + (1 - keep) * now[name]
    smooth = Generator(found.shape)
    smooth.load_state_dict(average)
    return first, made, smooth, critic


def frames(clips: Tensor, side: int, fade: float) -> Tensor:
    values = clips.float() / 127.5 - 1
    pool = torch.nn.functional.avg_pool3d
    while values.shape[-1] > side:
        values = pool(values, (1, 2, 2))
    coarse = pool(values, (1, 2, 2)).repeat_interleave(2, 3).repeat_interleave(2, 4)
    return fade * values + (1 - fade) * coarse


def critic_step(
    made: Generator, critic: Discriminator, adams: list[torch.optim.Adam], real: Tensor,
    between: Tensor, fade: float,
) -> None:
    """Update the discriminator with the WGAN-GP loss and the drift term."""
    past = real[:, :, :3]
    adams[1].zero_grad()
    with torch.no_grad():
        false = torch.cat([past, made(past, fade)], 2)
    way = between.view(-1, 1, 1, 1, 1)
    points = ((1 - way) * real + way * false).requires_grad_()
    (slope,) = torch.autograd.grad(critic(points, fade).sum(), points, create_graph=True)
    lengths = slope.square().sum((1, 2, 3, 4)).sqrt()
    true_score, false_score = critic(real, fade)[:, 0], critic(false, fade)[:, 0]
    loss = false_score - true_score + 10 * (lengths - 1) ** 2 + 0.01 * true_score**2
    loss.mean().backward()  # type: ignore[no-untyped-call]
    keep_active(critic, real)
    adams[1].step()


def generator_step(
    made: Generator, critic: Discriminator, adams: list[torch.optim.Adam], real: Tensor,
    fade: float, judged: bool,
) -> None:
    """Update the generator with the reconstruction loss and, if `judged`, the adversarial loss."""
    past, right = real[:, :, :3], real[:, :, 3:]
    adams[0].zero_grad()
    future = made(past, fade)
    loss = 5 * (future - right).square().mean((1, 2, 3, 4))
    if judged:
        loss = loss - critic(torch.cat([past, future], 2), fade)[:, 0]
    loss.mean().backward()  # type: ignore[no-untyped-call]
    keep_active(made, real)
    adams[0].step()


def keep_active(network: Generator | Discriminator, clips: Tensor) -> None:
    """Remove the gradients of all layers that the current level does not use."""
    active = {id(one) for one in network.active({8: 1, 16: 2}[clips.shape[-1]])}
    for parameter in network.parameters():
        if id(parameter) not in active:
            parameter.grad = None


@pytest.mark.parametrize(("part", "group", "alone"), [
    (3, 4, 0), (1, 1, 0), (2, 2, 0), (3, 4, 1),
])
def test_the_loop_does_what_a_second_one_does(
    sequences: Path, tmp_path: Path, part: int, group: int, alone: int
) -> None:
    """The trained weights of the app equal the weights of the reference loop.

    The cases are whole batches, micro-batches, and a first epoch without adversarial loss.
    """
    words = {**WORDS, "data": sequences, "out": tmp_path / "run", "micro-batch": part,
             "stddev-group": group, "pretraining-epochs": alone}
    argv = ["train", *(f"--{key}={value}" for key, value in words.items())]
    assert program.main(argv) == 0
    state = checkpoint.load(reading.checkpoints(tmp_path / "run")[-1])["parts"]
    first, *trained = reference(sequences, group, alone)
    names = ("generator", "average", "discriminator")
    for name, began, network in zip(names, first, trained, strict=True):
        right = network.state_dict()
        found = {key: torch.from_numpy(state[name][key]) for key in right}
        # Adam makes steps of one size also of gradients that are rounding errors.
        assert distance(found, right) < 0.02 * distance(began, right), name


def distance(one: State, other: State) -> float:
    return math.sqrt(sum(float((one[key] - other[key]).square().sum()) for key in one))
