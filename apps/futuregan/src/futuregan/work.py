"""The operations of a training step: `python -m futuregan.work` prints the file work.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from futuregan import method
from futuregan.minibatch_stddev import MinibatchStddev
from futuregan.model import Discriminator, EqualizedLayer, Generator, Shape
from trainkit.torch import work
from trainkit.workfile import write
from trainkit.zoo.measure import TRAINING

SIZES = (128,)
"""Frame sizes (side lengths in pixels) for which work.json describes the networks.

All other options have their defaults.
"""

PENALTY = "penalty"
"""Prefix of the names of the gradient penalty's layers in work.json; the app card repeats it."""


# PyTorch does not annotate the base class, neither its definition nor its `__init__`.
class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context manager that counts floating-point operations by PyTorch's formulas.

    PyTorch's own `FlopCounterMode` also tracks the modules, which fails in a gradient penalty.

    Attributes:
        total: number of operations so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self, operation: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a PyTorch operation, and add its number of floating-point operations to `total`."""
        result = operation(*args, **(kwargs or {}))
        formula = flop_registry.get(operation._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


class Feature(MinibatchStddev):
    """A stand-in for the layer that appends the minibatch standard deviation as a feature.

    It appends a copy of the first feature instead, so that it needs no groups of clips. Neither
    layer has weights.
    """

    def __init__(self) -> None:
        nn.Module.__init__(self)

    def forward(self, values: Tensor, batches: int, size: int) -> Tensor:
        """Return `values` (n, F, T, H, W), with a copy of the first feature appended."""
        return torch.cat([values, values[:, :1]], 1)


def describe(size: int) -> dict[str, Any]:
    """Return the side of the frames, and the layers of both networks for one clip.

    A training step runs the discriminator several times. Therefore the operations and outputs of
    its layers are multiplied by a number of training passes, so that all layers together have the
    operations of the whole step. The gradient penalty does not use autocast; it has separate
    layers.
    """
    shape = Shape(size)
    with torch.device("meta"):
        generator, discriminator = Generator(shape), Discriminator(shape, Feature())
        clip = torch.empty(1, shape.channels, shape.past + shape.future, size, size)
    made = work.layers(generator, clip[:, :, : shape.past], operations=operations)
    judged = work.layers(discriminator, clip, operations=operations)
    once = TRAINING * sum(layer[2] for layer in judged)
    whole, plain = (step_operations(generator, discriminator, clip, penalty=penalty)
                    for penalty in (True, False))
    passes = (plain - TRAINING * sum(layer[2] for layer in made)) / once
    found = [[f"generator.{name}", *rest] for name, *rest in made]
    found += _repeated("discriminator", judged, passes)
    found += [[name, [], *rest] for name, _, *rest in _repeated(
        PENALTY, judged, (whole - plain) / once)]
    return {"size": size, "layers": found}


def _repeated(prefix: str, layers: list[list[Any]], passes: float) -> list[list[Any]]:
    return [[f"{prefix}.{name}", sizes, round(passes * flops), round(passes * outputs)]
            for name, sizes, flops, outputs in layers]


def operations(module: nn.Module, output: Tensor) -> int:
    """Return the operations of a layer with equalized learning rate; 0 for other modules."""
    if not isinstance(module, EqualizedLayer):
        return 0
    weight = module.weight  # the windows of a transposed convolution do not overlap
    products = weight.shape[0] if module.transposed else weight[0].numel()
    return int(2 * output.numel() * products)


def step_operations(
    generator: Generator, discriminator: Discriminator, clip: Tensor, *, penalty: bool = True
) -> int:
    """Return the number of operations of a training step with one clip, counted by PyTorch.

    The step is the same as in `train.py`: generation, the loss of the discriminator for a real and
    a generated clip, the gradient penalty, and the loss of the generator.
    """
    for network in (generator, discriminator):
        network.train()
    past, level = generator.shape.past, generator.shape.levels - 1
    with Counter() as counter:
        fake = torch.cat([clip[:, :, :past], generator(clip[:, :, :past])], 2)
        scores = discriminator(torch.cat([clip, fake.detach()]), 1.0, 2)
        loss = scores.sum()
        if penalty:
            loss = loss + method.gradient_penalty(
                discriminator, clip, fake.detach(), torch.empty(1, device=clip.device)).sum()
        torch.autograd.backward(loss, inputs=discriminator.active(level))
        loss = discriminator(fake).sum()
        torch.autograd.backward(loss, inputs=generator.active(level))
    return int(counter.total)


def main() -> None:
    """Print the file work.json.

    For each side of the frames in `SIZES`, it has the number of floating-point operations of each
    layer in a training step.
    """
    write({str(size): describe(size) for size in SIZES})


if __name__ == "__main__":
    main()
