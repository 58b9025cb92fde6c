"""Optimizers and averages for large batches, where PyTorch has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

Groups = list[dict[str, Any]]


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> Groups:
    """Return two parameter groups: weights, which decay, and the others, which do not.

    No decay on biases and batch normalization (all have one dimension): Jia et al.,
    arXiv:1807.11205, section 3. LARS leaves the second group alone, too.
    """
    everything = list(parameters)
    return [
        {"params": [p for p in everything if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in everything if p.ndim <= 1], "weight_decay": 0.0, "trust": None},
    ]


class Lars(Optimizer):
    """SGD with momentum and a rate of its own for each layer.

    You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks",
    arXiv:1708.03888, algorithm 1: with weights w, gradient g, decay b and trust
    coefficient eta, the layer's rate is eta |w| / (|g| + b |w|), and its velocity
    v <- m v + rate * (g + b w), w <- w - lr v. The paper has lr in the velocity: the same
    for a constant lr, and where lr changes, this is the momentum correction of Goyal et
    al., arXiv:1706.02677, section 3, remark 2. Layers with `trust` None (biases and batch
    normalization) and layers without weights or gradient take the rate 1.

    Args:
        groups: parameters, as of `decay_groups`.
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
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        decayed = gradient.add(weight, alpha=group["weight_decay"])
        if group["trust"] is not None:
            norm, slope = weight.norm(), gradient.norm()
            rate = group["trust"] * norm / (slope + group["weight_decay"] * norm)
            # Without a branch, so that a GPU need not tell the CPU the norms.
            decayed.mul_(torch.where((norm > 0) & (slope > 0), rate, 1.0))
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight)
        state["velocity"].mul_(group["momentum"]).add_(decayed)
        weight.sub_(state["velocity"], alpha=group["lr"])


def moving_average(network: nn.Module, decay: float) -> AveragedModel:
    """Return the exponential moving average of weights and buffers; `update_parameters` steps it.

    average <- decay * average + (1 - decay) * value, from the second update on; the first one
    copies. After Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992.
    """
    average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return AveragedModel(network, multi_avg_fn=average, use_buffers=True)
