"""The formulas: losses, gradient penalty, optimizers, learning rate, and preparation of frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from futuregan.growth import Growth, GrowthStage
from futuregan.minibatch_stddev import MinibatchStddev
from futuregan.model import Discriminator, Generator, Shape, downsample, fade_in, upsample
from futuregan.settings import TrainSettings
from trainkit.exits import ArgumentError
from trainkit.torch.strategy import TorchStrategy
from trainkit.training import Course

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision -> dtype of autocast; other precisions do not use autocast."""
BETAS = (0.0, 0.99)
"""Betas of Adam: arXiv:1710.10196, appendix A.1."""


def growth(settings: TrainSettings) -> Growth:
    """Return the progressive growth that `settings` specify.

    Raises:
        ArgumentError: `--epochs` is too small to reach the last resolution.
    """
    try:
        return Growth(
            int(settings.first_size), int(settings.size), settings.transition_epochs,
            settings.stabilization_epochs, settings.epochs, settings.batch_size_per_rank,
        )
    except ValueError as error:
        raise ArgumentError(f"--epochs: {error}", code="argument-invalid") from error


def check_groups(settings: TrainSettings, phases: Growth, ranks: int) -> None:
    """Raise an error if micro-batches would change the minibatch standard deviation.

    Args:
        settings: options of the training.
        phases: phases of the growth.
        ranks: number of ranks.

    Raises:
        ArgumentError: at some resolution a micro-batch has fewer clips than a group.
    """
    for phase in phases.phases:
        seen = settings.micro_batch_sizes.at(phase.size)
        if seen < settings.stddev_group:
            seen *= ranks  # the group has clips of all ranks
        whole = min(settings.stddev_group, phase.batch * ranks)
        if seen < whole:
            raise ArgumentError(
                f"--micro-batch {settings.micro_batch}: the discriminator would see the standard "
                f"deviation of {seen} clips instead of {whole} (--stddev-group "
                f"{settings.stddev_group}); use {-(-whole // ranks)} or more, or smaller groups",
                code="arguments-conflict",
            )


def course(settings: TrainSettings, phases: Growth, steps: Callable[[int], int]) -> Course:
    """Return the number of steps, and the intervals of logs, checkpoints and evaluations.

    Args:
        settings: options of the training.
        phases: phases of the growth.
        steps: function from the batch size of a rank to the number of steps of an epoch.
    """
    counts = [steps(phases.phase(epoch).batch) for epoch in range(phases.epochs)]
    found = Course.of(settings, counts, sum(counts))
    return replace(found, eval_every=0) if settings.synthetic else found


def networks(
    settings: TrainSettings, shape: Shape, strategy: TorchStrategy
) -> tuple[Generator, Discriminator]:
    """Return both networks on their device, with the same initial weights on all ranks."""
    # channels_last_3d reduces the time of a step on CPUs to two thirds (measured); cuDNN needs this
    # layout for tensor cores.
    fast = strategy.device.type == "cpu" or settings.precision in HALF
    layout = torch.channels_last_3d if fast else torch.contiguous_format
    torch.manual_seed(settings.seed)
    generator = Generator(shape, layout)
    minibatch_stddev = MinibatchStddev(settings.stddev_group, settings.micro_batch_sizes, strategy)
    discriminator = Discriminator(shape, minibatch_stddev, layout)
    for network in (generator, discriminator):
        network.to(strategy.device)
        strategy.distribute(network, overlap=False)
    return generator, discriminator


def optimizer(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return Adam without momentum for all weights of a network."""
    return torch.optim.Adam(
        network.parameters(), lr=settings.base_lr, betas=BETAS, eps=1e-8, fused=True
    )


def learning_rate(settings: TrainSettings, stage: GrowthStage) -> float:
    """Return the learning rate of both networks: each growth multiplies it by `lr_decay`."""
    return settings.base_lr * settings.lr_decay**stage.grown


def prepare_clips(clips: Tensor, stage: GrowthStage) -> Tensor:
    """Return clips as input of the networks at a stage, with values in -1..1.

    While a resolution is faded in, real clips are blended with their lower resolution, with the
    same weight as the new layers: arXiv:1710.10196, figure 2.

    Args:
        clips: values 0..255, (n, C, T, H, W), at the last resolution.
        stage: stage of the growth.
    """
    values = clips.float().div_(127.5).sub_(1)
    values = downsample(values, values.shape[-1] // stage.size)
    return values if stage.fade == 1 else fade_in(upsample(downsample(values)), values, stage.fade)


def gradient_penalty(
    score: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, interpolation: Tensor
) -> Tensor:
    """Return (|gradient of the score| - 1)^2 at points between real and fake clips: (n,).

    Gulrajani et al., arXiv:1704.00028, equation 3. The result is differentiable. Call this function
    in fp32, because a product of gradients exceeds the range of fp16.

    Args:
        score: function from clips (n, C, T, H, W) to scores.
        real: clips (n, C, T, H, W).
        fake: clips (n, C, T, H, W).
        interpolation: positions of the points, from 0 (real) to 1 (fake), (n,).
    """
    points = torch.lerp(real, fake, interpolation.view(-1, 1, 1, 1, 1)).requires_grad_()
    (gradients,) = torch.autograd.grad(score(points).sum(), points, create_graph=True)
    norms: Tensor = gradients.flatten(1).norm(dim=1)
    return (norms - 1).square()


def critic_losses(loss: str, real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of the discriminator for each pair of a real and a fake clip, (n,).

    `wgan-gp`: arXiv:1704.00028, equation 3, without the penalty. `lsgan`: Mao et al.,
    arXiv:1611.04076, equation 9. `gan`: Goodfellow et al., arXiv:1406.2661, equation 1.

    Args:
        loss: name of the adversarial loss.
        real: scores of the real clips, (n, 1).
        fake: scores of the fake clips, (n, 1).
    """
    real, fake = real.float().flatten(), fake.float().flatten()
    if loss == "wgan-gp":
        return fake - real
    if loss == "lsgan":
        return ((real - 1).square() + fake.square()) / 2
    return functional.softplus(-real) + functional.softplus(fake)


def generator_losses(loss: str, fake: Tensor) -> Tensor:
    """Return the loss of the generator for each fake clip, (n,).

    `critic_losses` names the papers. `gan` is the non-saturating form of arXiv:1406.2661,
    section 3.

    Args:
        loss: name of the adversarial loss.
        fake: scores of the fake clips, (n, 1).
    """
    fake = fake.float().flatten()
    if loss == "wgan-gp":
        return -fake
    if loss == "lsgan":
        return (fake - 1).square() / 2
    return functional.softplus(-fake)


@torch.no_grad()
def update_ema(
    average: Generator, generator: Generator, decay: float, steps: int, level: int
) -> None:
    """Update the moving average of the weights that are trained at `level`.

    The decay is at most (1 + steps) / (10 + steps), where `steps` is the number of steps so far.
    Thus the initial weights soon have no effect on the average.
    """
    share = 1 - min(decay, (1 + steps) / (10 + steps))
    torch._foreach_lerp_([*average.active(level)], [*generator.active(level)], share)
