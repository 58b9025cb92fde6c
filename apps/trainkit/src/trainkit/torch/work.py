"""Count the operations of a network in each layer, for predictions of `trimaran plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def layers(
    network: nn.Module, *inputs: Tensor,
    operations: Callable[[nn.Module, Tensor], int] | None = None,
) -> list[list[Any]]:
    """Return a description of each layer of a network, in the order of the forward pass.

    A convolution or dense layer takes two operations (a multiplication and an addition) for each
    output value and each weight that contributes to the value. The few operations of other layers
    are not counted, as is usual.

    Args:
        network: the network; on the device `meta`, nothing is computed.
        inputs: the inputs for one sample.
        operations: function that returns the number of operations of a module, given the module and
            its output; by default, convolutions and dense layers of PyTorch are counted.

    Returns:
        For each module without submodules: name, number of elements of each parameter tensor,
        operations of the forward pass for one sample, and number of output values.
    """
    found: list[list[Any]] = []
    count = operations or _operations

    def hook(name: str) -> Any:
        def keep(module: nn.Module, _: object, output: Any) -> None:
            sizes = [one.numel() for one in module.parameters(recurse=False)]
            found.append([name, sizes, count(module, output), output.numel()])
        return keep

    hooks = [module.register_forward_hook(hook(name)) for name, module in network.named_modules()
             if not list(module.children())]
    network.eval()
    with torch.no_grad():
        network(*inputs)
    for one in hooks:
        one.remove()
    return found


def _operations(module: nn.Module, output: Tensor) -> int:
    if isinstance(module, nn.Linear | nn.Conv2d | nn.Conv3d):
        return 2 * output.numel() * module.weight[0].numel()
    return 0
