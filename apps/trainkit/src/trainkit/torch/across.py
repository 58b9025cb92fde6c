"""A mean over the ranks that gradients flow through, and gradients of gradients."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from trainkit.torch.strategy import TorchStrategy


def mean(tensor: Tensor, strategy: TorchStrategy) -> Tensor:
    """Return the mean of `tensor` over the ranks, of one shape on all of them.

    All ranks call it, and go through it backwards, in the same order. Each rank's gradient is
    that of the mean over the ranks of what they make of it, times their number: so it is what
    one process with all samples has, once the gradients of the weights are averaged.
    """
    return cast("Tensor", _Mean.apply(tensor, strategy))  # type: ignore[no-untyped-call]


class _Mean(torch.autograd.Function):
    """Linear and symmetric over the ranks, so that it is its own derivative, at any depth."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, strategy: TorchStrategy) -> Tensor:
        ctx.strategy = strategy
        found = tensor.detach().contiguous().clone()
        strategy.average([found])
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return mean(gradient, ctx.strategy), None
