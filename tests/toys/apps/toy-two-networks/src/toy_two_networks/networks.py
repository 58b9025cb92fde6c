"""A generator that can grow, a critic, and what they say of each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WIDTH = 32
NOISE = 2  # numbers that a point is made of


class Generator(nn.Module):
    """Makes points (N, 2) of noise (N, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(NOISE, WIDTH), nn.LeakyReLU(0.2))
        self.blocks = nn.ModuleList([block()])
        self.last = nn.Linear(WIDTH, 2)

    def grow(self) -> nn.Module:
        """Add a block, which changes nothing yet; return it."""
        added = block()
        self.blocks.append(added)
        return added

    def forward(self, noise: Tensor) -> Tensor:
        """Return points."""
        values = self.first(noise)
        for residual in self.blocks:
            values = values + residual(values)
        found: Tensor = self.last(values)
        return found


def block() -> nn.Module:
    """Return a residual block whose branch begins at zero."""
    last = nn.Linear(WIDTH, WIDTH)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2), last)


def critic() -> nn.Module:
    """Return what gives each of the points (N, 2) a score (N, 1)."""
    return nn.Sequential(
        nn.Linear(2, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, 1),
    )


def slopes(critic: nn.Module, points: Tensor) -> Tensor:
    """Return the norms (N) of the scores' gradients at `points`, which can be differentiated."""
    places = points.detach().requires_grad_()
    (found,) = torch.autograd.grad(critic(places).sum(), places, create_graph=True)
    norms: Tensor = found.norm(dim=1)
    return norms
