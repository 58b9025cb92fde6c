"""A training of a generator and a critic, with a penalty on gradients; the generator grows.

As a program, with the arguments STRATEGY COMPRESSION FOLDER, it trains as one rank that Open MPI
has started.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

BATCH, STEPS = 8, 6
GROWS = 3  # the step before which it does


def train(strategy: TorchStrategy, average: bool = True) -> dict[str, Tensor]:
    """Return the weights after a few steps; gradients are averaged only if `average` is true."""
    draw = torch.Generator().manual_seed(strategy.rank)  # what is drawn differs: rank 0's counts
    generator, critic = Network(2, draw), Network(1, draw)
    networks = [generator, critic]
    for one in networks:
        strategy.distribute(one, overlap=False)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in networks]
    source = torch.Generator().manual_seed(7)
    for step in range(STEPS):
        if step == GROWS:
            added = drawn(nn.Linear(2, 2), draw)
            generator.layers.append(added)
            strategy.distribute(generator, overlap=False)
            optimizers[0].add_param_group({"params": list(added.parameters())})
        real = share(torch.randn(BATCH, 2, 1, 1, generator=source) + 2, strategy)
        noise = share(torch.randn(BATCH, 2, 1, 1, generator=source), strategy)
        for number, loss in ((1, against), (0, fooled)):
            optimizers[number].zero_grad()
            loss(critic, generator, real, noise).backward()
            with strategy.averaged(*networks[number : number + average]):
                optimizers[number].step()
    return {
        f"{number}.{name}": value
        for number, one in enumerate(networks)
        for name, value in one.state_dict().items()
    }


class Network(nn.Module):
    """A small convolutional network, used as generator and as critic.

    Its first weights are not contiguous in memory, and some of its weights get no gradient.
    """

    def __init__(self, outputs: int, draw: torch.Generator) -> None:
        super().__init__()
        first = nn.Conv2d(2, 8, 1).to(memory_format=torch.channels_last)
        self.layers = nn.Sequential(first, nn.Softplus(), nn.Flatten(), nn.Linear(8, outputs))
        self.unused = nn.Linear(1, 1)
        drawn(self, draw)

    def forward(self, points: Tensor) -> Tensor:
        found: Tensor = self.layers(points)
        return found


def drawn(module: nn.Module, draw: torch.Generator) -> nn.Module:
    """Draw the weights of `module` from `draw`, and return `module`.

    PyTorch's global random state cannot be used, because ranks that are threads share it.
    """
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draw) / 2)
    return module


def share(batch: Tensor, strategy: TorchStrategy) -> Tensor:
    """Return the samples of a global batch that this rank processes."""
    return batch.chunk(strategy.size)[strategy.rank]


def against(critic: nn.Module, generator: nn.Module, real: Tensor, noise: Tensor) -> Tensor:
    """Return the loss of the critic: Wasserstein loss with a penalty on gradients.

    Gulrajani et al., arXiv:1704.00028, algorithm 1; the penalty is computed at the real samples.
    """
    made = generator(noise).detach().view_as(real)
    real = real.clone().requires_grad_()
    scores = critic(real)
    (slope,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
    penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return critic(made).mean() - scores.mean() + 10 * penalty


def fooled(critic: nn.Module, generator: nn.Module, _: Tensor, noise: Tensor) -> Tensor:
    """Return the loss of the generator; its gradient passes through the critic."""
    return -critic(generator(noise).view_as(noise)).mean()


if __name__ == "__main__":
    name, compression, folder = sys.argv[1:]
    ranks = start(name, device="cpu", compression=compression)
    torch.save(train(ranks), Path(folder, f"rank-{ranks.rank}.pt"))
    ranks.close()
