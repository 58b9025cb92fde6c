"""The method: losses, gradient penalty, optimizers, and what is done to frames before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from futuregan.growth import Growth, Moment
from futuregan.model import Discriminator, Generator, Shape, faded, larger, smaller
from futuregan.settings import TrainSettings
from futuregan.spread import Spread
from trainkit.exits import ArgumentError
from trainkit.torch.strategy import TorchStrategy
from trainkit.training import Course

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision -> what autocast computes in; the others have none."""
BETAS = (0.0, 0.99)
"""Of Adam: arXiv:1710.10196, appendix A.1."""


def growth(settings: TrainSettings) -> Growth:
    """Return the phases that `settings` ask for.

    Raises:
        ArgumentError: `--epochs` end before the last size.
    """
    try:
        return Growth(
            int(settings.first_size), int(settings.size), settings.transition_epochs,
            settings.stabilization_epochs, settings.epochs, settings.batch_size_per_rank,
        )
    except ValueError as error:
        raise ArgumentError(f"--epochs: {error}") from error


def check_groups(settings: TrainSettings, phases: Growth, ranks: int) -> None:
    """Refuse parts of a batch that hold no whole group: other deviations make other losses.

    Raises:
        ArgumentError: at some size there is such a part.
    """
    for phase in phases.phases:
        seen = settings.at_once.at(phase.size)
        if seen < settings.stddev_group:
            seen *= ranks  # the group is of all ranks
        whole = min(settings.stddev_group, phase.batch * ranks)
        if seen < whole:
            raise ArgumentError(
                f"--micro-batch {settings.micro_batch}: the discriminator would see how much "
                f"{seen} clips differ, and not {whole} as --stddev-group {settings.stddev_group} "
                f"says; take {-(-whole // ranks)} or more, or smaller groups"
            )


def course(settings: TrainSettings, phases: Growth, steps: Callable[[int], int]) -> Course:
    """Return how far the training goes; `steps` tells the steps of an epoch by its batch."""
    counts = [steps(phases.phase(epoch).batch) for epoch in range(phases.epochs)]
    planned = sum(counts)
    last = min(planned, settings.max_steps or planned)
    return Course(
        counts, planned, last, log_every=settings.log_every,
        checkpoint_every=settings.checkpoint_every or last,
        eval_every=0 if settings.synthetic else settings.eval_every,
        patience=settings.watchdog,
    )


def networks(
    settings: TrainSettings, shape: Shape, strategy: TorchStrategy
) -> tuple[Generator, Discriminator]:
    """Return both networks with the same first weights on all ranks, on their device."""
    # Features beside each other: on CPUs, where it was measured, a step takes two thirds of the
    # time; for tensor cores it is the order that cuDNN wants.
    fast = strategy.device.type == "cpu" or settings.precision in HALF
    layout = torch.channels_last_3d if fast else torch.contiguous_format
    torch.manual_seed(settings.seed)
    generator = Generator(shape, layout)
    discriminator = Discriminator(shape, Spread(settings.stddev_group, settings.at_once, strategy),
                                  layout)
    for network in (generator, discriminator):
        network.to(strategy.device)
        strategy.distribute(network, overlap=False)
    return generator, discriminator


def optimizer(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return Adam without momentum."""
    return torch.optim.Adam(
        network.parameters(), lr=settings.base_lr, betas=BETAS, eps=1e-8, fused=True
    )


def learning_rate(settings: TrainSettings, moment: Moment) -> float:
    """Return the rate of both networks: lower by a factor with each growth."""
    return settings.base_lr * settings.lr_decay**moment.grown


def prepared(clips: Tensor, moment: Moment) -> Tensor:
    """Return clips of 0..255 as the networks see them at a moment, in -1..1.

    While a resolution is faded in, so is it in what is real: arXiv:1710.10196, figure 2.
    """
    values = clips.float().div_(127.5).sub_(1)
    values = smaller(values, values.shape[-1] // moment.size)
    return values if moment.fade == 1 else faded(larger(smaller(values)), values, moment.fade)


def slope_penalty(
    score: Callable[[Tensor], Tensor], real: Tensor, made: Tensor, between: Tensor
) -> Tensor:
    """Return (|gradient| - 1)^2 of the scores at points between clips: (n,).

    Gulrajani et al., arXiv:1704.00028, equation 3. It can be differentiated, and is to be
    computed in fp32: a product of gradients leaves the range of fp16.

    Args:
        score: gives clips (n, C, T, H, W) scores.
        real: clips.
        made: clips.
        between: where between the two, 0..1, (n,).
    """
    points = torch.lerp(real, made, between.view(-1, 1, 1, 1, 1)).requires_grad_()
    (found,) = torch.autograd.grad(score(points).sum(), points, create_graph=True)
    slopes: Tensor = found.flatten(1).norm(dim=1)
    return (slopes - 1).square()


def critic_losses(loss: str, real: Tensor, made: Tensor) -> Tensor:
    """Return what the discriminator loses for each pair of scores (n, 1) of clips: (n,).

    `wgan-gp`: arXiv:1704.00028, equation 3, without its penalty. `lsgan`: Mao et al.,
    arXiv:1611.04076, equation 9. `gan`: Goodfellow et al., arXiv:1406.2661, equation 1.
    """
    real, made = real.float().flatten(), made.float().flatten()
    if loss == "wgan-gp":
        return made - real
    if loss == "lsgan":
        return ((real - 1).square() + made.square()) / 2
    return functional.softplus(-real) + functional.softplus(made)


def generator_losses(loss: str, made: Tensor) -> Tensor:
    """Return what the generator loses for each score (n, 1) of its clips: (n,).

    As `critic_losses`; of `gan` the form that does not saturate (arXiv:1406.2661, section 3).
    """
    made = made.float().flatten()
    if loss == "wgan-gp":
        return -made
    if loss == "lsgan":
        return (made - 1).square() / 2
    return functional.softplus(-made)


@torch.no_grad()
def follow(average: Generator, generator: Generator, decay: float, steps: int, level: int) -> None:
    """Move the average towards the weights that are trained at `level`.

    In the first steps it is shorter: the decay is at most (1 + steps) / (10 + steps), so that the
    first weights are soon forgotten.
    """
    share = 1 - min(decay, (1 + steps) / (10 + steps))
    torch._foreach_lerp_([*average.active(level)], [*generator.active(level)], share)
