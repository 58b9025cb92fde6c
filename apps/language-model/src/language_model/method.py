"""The formulas of a training: optimizer, learning rate, and floating-point operations."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from language_model.lora import Lora
from language_model.settings import TrainSettings
from language_model.shapes import Shape
from language_model.steps import Network
from trainkit import schedules
from trainkit.exits import ArgumentError
from trainkit.torch import optim
from trainkit.training import Course


@dataclass(frozen=True)
class AdamW:
    """The settings of AdamW: Loshchilov and Hutter, arXiv:1711.05101, algorithm 2.

    The defaults are those of GPT-3 (Brown et al., arXiv:2005.14165, appendix B), which Llama 2
    (arXiv:2307.09288, section 2.2) uses with another `epsilon`.

    Attributes:
        rate: learning rate.
        beta1: decay of the mean of the gradient.
        beta2: decay of the mean of the squared gradient.
        epsilon: added to the root of the mean square.
        weight_decay: decay of the weights, except biases and norms.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1

    @classmethod
    def of(cls, settings: TrainSettings) -> AdamW:
        """Return the settings of AdamW among the options of a training."""
        return cls(
            settings.learning_rate, settings.beta1, settings.beta2, settings.epsilon,
            settings.weight_decay,
        )


def make_optimizer(network: Network, settings: AdamW) -> Optimizer:
    """Return AdamW; with ZeRO-1, each replica keeps the state of a part of the weights."""
    trained = [weight for weight in network.parameters.values() if weight.requires_grad]
    groups = [
        {"params": group["params"], "weight_decay": group["weight_decay"]}
        for group in optim.decay_groups(trained, settings.weight_decay)
        if group["params"]
    ]
    options: dict[str, Any] = {
        "lr": settings.rate, "betas": (settings.beta1, settings.beta2), "eps": settings.epsilon,
        "fused": True,
    }
    if network.layout.data_parallel == "zero1" and network.replica_group is not None:
        divided: Optimizer = _zero_redundancy()(
            groups, torch.optim.AdamW, process_group=network.replica_group, **options
        )
        return divided
    return torch.optim.AdamW(groups, **options)


def states(optimizer: Optimizer) -> dict[Tensor, Any]:
    """Return weight -> values that the optimizer keeps for it on this rank, such as its moments."""
    found: dict[Tensor, Any] = _own(optimizer).state
    return found


def updated(optimizer: Optimizer, network: Network) -> dict[str, Tensor]:
    """Return the weights that this rank updates, by name; with ZeRO-1, only some of all weights."""
    own = {weight for group in _own(optimizer).param_groups for weight in group["params"]}
    return {name: weight for name, weight in network.parameters.items() if weight in own}


def _own(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer of this rank, without the wrapper that ZeRO-1 puts around it."""
    found: Optimizer = getattr(optimizer, "optim", optimizer)
    return found


def _zero_redundancy() -> Any:
    """Import the class that divides an optimizer over ranks.

    PyTorch 2.13 emits a DeprecationWarning during the import, because the package still uses
    `torch.jit.script`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer


def clipping(norm: Tensor, most: float) -> Tensor:
    """Return the factor, a scalar, that reduces a gradient of norm `norm` to at most `most`.

    Pascanu et al., "On the difficulty of training recurrent neural networks", arXiv:1211.5063,
    algorithm 1. If `most` is 0, the factor is 1.
    """
    return (most / norm).clamp(max=1.0) if most else torch.ones_like(norm)


def learning_rate(settings: TrainSettings, step: int, steps: int) -> float:
    """Return the learning rate after `step` of `steps` updates.

    It rises linearly in the warm-up, and then falls like half a cosine (Brown et al.,
    arXiv:2005.14165, appendix B) or linearly, or stays constant.
    """
    peak, warm = settings.learning_rate, settings.warmup_steps
    end = settings.final_rate * peak
    if step < warm:
        return schedules.warmup(step + 1, warm, peak)
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "linear":
        return schedules.polynomial(step - warm, steps - warm, peak, end, power=1)
    return schedules.cosine(step - warm, steps - warm, peak, end)


def check(settings: TrainSettings, steps: int) -> None:
    """Refuse a warm-up that is longer than the training, for `steps` steps per epoch.

    Raises:
        ArgumentError: the warm-up is too long.
    """
    planned = settings.steps or settings.epochs * steps
    if settings.warmup_steps > planned:
        raise ArgumentError(
            f"--warmup-steps {settings.warmup_steps} is longer than the training ({planned} "
            "steps): shorten the warm-up",
            code="arguments-conflict",
        )


def course(settings: TrainSettings, steps: int) -> Course:
    """Return the length of a training whose epochs have `steps` steps, and its intervals.

    These are the intervals between log lines, checkpoints and evaluations.
    """
    return Course.of(settings, steps, settings.steps or settings.epochs * steps)


def operations_per_token(shape: Shape, sequence: int, lora: Lora | None = None) -> float:
    """Return the floating-point operations that a training needs for one token.

    Chowdhery et al., "PaLM", arXiv:2204.02311, appendix B: 6 N + 12 L H Q T, for N parameters, L
    layers, H heads of width Q and sequences of T tokens. The parameters of lookup tables do not
    count, because a lookup is not a product. The table of tokens counts if it is also the output
    layer. Recomputed activations do not count. Of the 6 operations per parameter, 2 are for the
    forward pass, 2 for the gradients of the activations and 2 for the gradients of the parameters.
    In a low-rank adaptation, the trained parameters count 6 operations, and all others 4, because
    they have no gradients.
    """
    tables = 0 if shape.tied else shape.width * shape.vocabulary
    if shape.family == "gpt2":
        tables += shape.width * shape.positions
    attention = 12 * shape.layers * shape.heads * shape.head_width * sequence
    if lora is not None:
        return 4.0 * (shape.parameters - tables) + 6.0 * lora.parameters(shape) + attention
    return 6.0 * (shape.parameters - tables) + attention
