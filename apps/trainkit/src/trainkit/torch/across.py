"""A differentiable mean over the ranks, including gradients of gradients."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from trainkit.torch.strategy import TorchStrategy


def mean(tensor: Tensor, strategy: TorchStrategy) -> Tensor:
    """Return the mean of `tensor` over the ranks; the shape must be equal on all ranks.

    All ranks must call this function, and run backward through the mean, in the same order. The
    backward pass returns on each rank the mean of the incoming gradients of all ranks. After the
    gradients of the weights are averaged, they equal the gradients of one process with all samples.
    """
    return cast("Tensor", _Mean.apply(tensor, strategy))  # type: ignore[no-untyped-call]


class _Mean(torch.autograd.Function):
    """The mean over the ranks for autograd; its backward pass is the mean of the gradients, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, strategy: TorchStrategy) -> Tensor:
        ctx.strategy = strategy
        found = tensor.detach().contiguous().clone()
        strategy.average([found])
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return mean(gradient, ctx.strategy), None
