"""Describe the work of a network, layer by layer, for predictions of `trimaran plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def layers(
    network: nn.Module, *inputs: Tensor,
    operations: Callable[[nn.Module, Tensor], int] | None = None,
) -> list[list[Any]]:
    """Return the layers of a network in the order of its forward pass.

    The operations of a convolution are two (a multiplication and an addition) for each value of its
    output and each weight that contributes to it. Operations of other layers are few in comparison,
    and are not counted, as usual.

    Args:
        network: the network; on the device `meta`, nothing is computed.
        inputs: the inputs for one sample.
        operations: function from a module and its output to the operations; None: convolutions and
            dense layers of PyTorch are counted.

    Returns:
        For each module with parameters or with outputs of its own: name, sizes of its parameter
        tensors, operations of the forward pass for one sample, and number of output values.
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
