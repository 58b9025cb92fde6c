"""Optimizers and weight averages for large batches, which PyTorch does not provide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

Groups = list[dict[str, Any]]
Tensors = tuple[Tensor, ...] | list[Tensor]


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> Groups:
    """Return two parameter groups: weights that decay, and all other parameters.

    Biases and parameters of batch normalization, which have one dimension, do not decay: Jia et
    al., arXiv:1807.11205, section 3. `Lars` updates them with the global learning rate, not with
    a rate for each layer.

    Args:
        parameters: parameters of the network.
        weight_decay: weight decay of the first group.
    """
    everything = list(parameters)
    return [
        {"params": [p for p in everything if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in everything if p.ndim <= 1], "weight_decay": 0.0, "trust": None},
    ]


class Lars(Optimizer):
    """SGD with momentum and a learning rate for each layer.

    You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", arXiv:1708.03888,
    algorithm 1: with weights w, gradient g, weight decay b and trust coefficient eta, the rate of a
    layer is eta |w| / (|g| + b |w|); its velocity is v <- m v + rate * (g + b w), and w <- w - lr
    v. In the paper, the velocity contains lr. Both forms are equal for a constant lr; for a
    changing lr, the form without lr is the momentum correction of Goyal et al., arXiv:1706.02677,
    section 3, remark 2. Layers with `trust` None (biases and batch normalization), and layers whose
    weights or gradients are 0, have the rate 1.

    Args:
        groups: parameter groups, as from `decay_groups`.
        lr: global learning rate.
        momentum: m.
        trust: eta; the paper trains ResNet-50 with 0.001.
    """

    def __init__(
        self, groups: Groups, lr: float, momentum: float = 0.9, trust: float = 0.001
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "trust": trust}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one update from the gradients."""
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._update(weights, [weight.grad for weight in weights], group)

    def _update(
        self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]
    ) -> None:
        """Update all layers of a group together, with few kernels on a GPU."""
        decayed = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
        if group["trust"] is not None:
            norms = torch.stack(torch._foreach_norm(weights))
            slopes = torch.stack(torch._foreach_norm(gradients))
            rates = group["trust"] * norms / (slopes + group["weight_decay"] * norms)
            # No branch, so that the CPU need not wait for the norms on the GPU.
            rates = torch.where((norms > 0) & (slopes > 0), rates, 1.0)
            torch._foreach_mul_(decayed, rates.unbind())
        for weight in weights:
            if "velocity" not in self.state[weight]:
                self.state[weight]["velocity"] = torch.zeros_like(weight)
        velocities = [self.state[weight]["velocity"] for weight in weights]
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, decayed)
        torch._foreach_add_(weights, velocities, alpha=-group["lr"])


def moving_average(network: nn.Module, decay: float) -> AveragedModel:
    """Return the exponential moving average of the weights and buffers of a network.

    Call the method `update_parameters` of the result after each step. The first update copies the
    values. From the second update on, average <- decay * average + (1 - decay) * value. Integer
    buffers are always copied. After Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992.
    """

    @torch.no_grad()
    def update(averages: Tensors, values: Tensors, _: object) -> None:
        if averages[0].is_floating_point():
            torch._foreach_lerp_(averages, values, 1 - decay)
        else:  # one operation; PyTorch's own function runs four per buffer
            torch._foreach_copy_(averages, values)

    return AveragedModel(network, multi_avg_fn=update, use_buffers=True)
