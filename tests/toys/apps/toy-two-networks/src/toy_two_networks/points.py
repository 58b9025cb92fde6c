"""Points on a ring, noise, and the distance between two sets of points."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

HELD_OUT = 1024
DIRECTIONS = 32
SPREAD = 0.05


def batch(seed: int, step: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return points (size, 2), noise (size, 2) and interpolation weights (size, 1) of a step.

    These values of a global batch depend only on the arguments, so that any number of ranks can
    share the batch.
    """
    # PyTorch's generator takes 32 bits of a seed.
    mixed = np.random.SeedSequence([seed, step]).generate_state(1)
    draw = torch.Generator().manual_seed(int(mixed[0]))
    angle = 2 * math.pi * torch.rand(size, 1, generator=draw)
    ring = torch.cat([angle.cos(), angle.sin()], 1)
    points = ring + SPREAD * torch.randn(size, 2, generator=draw)
    return points, torch.randn(size, 2, generator=draw), torch.rand(size, 1, generator=draw)


def distance(one: Tensor, two: Tensor) -> float:
    """Return the sliced Wasserstein distance of two sets of points (N, 2): a mean over directions.

    Rabin et al., "Wasserstein Barycenter and Its Application to Texture Mixing" (2011), eq. 14.
    """
    angle = math.pi * torch.arange(DIRECTIONS) / DIRECTIONS
    directions = torch.stack([angle.cos(), angle.sin()])
    sorted_ = [(cloud @ directions).sort(dim=0).values for cloud in (one, two)]
    return float((sorted_[0] - sorted_[1]).abs().mean())
