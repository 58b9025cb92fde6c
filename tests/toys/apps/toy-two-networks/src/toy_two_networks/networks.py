"""A generator that can grow, a critic, and the gradients of the critic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 32
NOISE = 2  # numbers that a point is made of


class Generator(nn.Module):
    """A network that maps noise (N, 2) to points (N, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(NOISE, WIDTH), nn.LeakyReLU(0.2))
        self.blocks = nn.ModuleList([block()])
        self.last = nn.Linear(WIDTH, 2)

    def grow(self) -> nn.Module:
        """Add a block, which initially does not change the output, and return it."""
        added = block()
        self.blocks.append(added)
        return added

    def forward(self, noise: Tensor) -> Tensor:
        """Map noise (N, 2) to points (N, 2)."""
        values = self.first(noise)
        for residual in self.blocks:
            values = values + residual(values)
        found: Tensor = self.last(values)
        return found


def block() -> nn.Module:
    """Return a residual block whose branch initially returns zeros."""
    last = nn.Linear(WIDTH, WIDTH)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2), last)


def critic() -> nn.Module:
    """Return a network that maps points (N, 2) to scores (N, 1)."""
    return nn.Sequential(
        nn.Linear(2, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, 1),
    )


def slopes(critic: nn.Module, points: Tensor) -> Tensor:
    """Return the norms (N,) of the gradients of the scores at `points`, in differentiable form."""
    places = points.detach().requires_grad_()
    (found,) = torch.autograd.grad(critic(places).sum(), places, create_graph=True)
    norms: Tensor = found.norm(dim=1)
    return norms
