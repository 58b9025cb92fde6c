"""Read the layers of networks, with operations and parameters, from the `work.json` of an app."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import Field, TypeAdapter

from trimaran import paths, strict
from trimaran.errors import UsageError, nearest

TRAINING = 3
"""Operations of a training step, divided by the operations of its forward pass. The backward pass
computes the gradients of inputs and of weights. Each of these two needs the same number of
operations as the forward pass (Kaplan et al., arXiv:2001.08361, section 2.1, for matrix products).
"""

FP32 = 4
"""Size of the gradient of one parameter in bytes."""

FILE = "work.json"
"""Name of the file that describes the layers of an app's networks; `scripts/work.py` writes it."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Layer:
    """One layer of a network.

    Attributes:
        name: name of the layer's module.
        tensors: number of values of each parameter tensor.
        flops: operations of the forward pass for one sample.
        outputs: number of output values for one sample.
    """

    name: str
    tensors: tuple[int, ...]
    flops: int
    outputs: int

    @property
    def gradient_bytes(self) -> int:
        """The size in bytes of the layer's gradients in fp32."""
        return FP32 * sum(self.tensors)


@dataclass(frozen=True)
class Network:
    """The operations, parameters and outputs of a network for one sample.

    Attributes:
        name: name of the network, as in `work.json`.
        layers: layers of the network, in the order of the forward pass.
    """

    name: str
    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of the network."""
        return sum(sum(layer.tensors) for layer in self.layers)

    @property
    def flops(self) -> int:
        """The number of operations of the forward pass for one sample."""
        return sum(layer.flops for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        """The size in bytes of all gradients in fp32."""
        return FP32 * self.parameters


class _Described(strict.Model):
    """The description of one network in `work.json`."""

    size: Annotated[int, Field(gt=0)]
    layers: list[tuple[str, list[Count], Count, Count]]


def networks(app: str) -> list[str]:
    """Return the names of the networks that the app describes; empty if it has no `work.json`."""
    return sorted(_read(app))


def network(app: str, name: str) -> Network:
    """Return the layers of the app's network `name`, with their operations and parameters.

    Raises:
        UsageError: the app describes no network of this name.
    """
    known = _read(app)
    if name not in known:
        near = nearest(name, known) if known else "it describes none"
        raise UsageError(
            f"the work of the network '{name}' of {app} is unknown ({near})",
            code="plan-impossible", hint="`make generate-apps` writes work.json of the apps",
        )
    layers = (Layer(layer, tuple(sizes), flops, outputs)
              for layer, sizes, flops, outputs in known[name].layers)
    return Network(name, tuple(layers))


@cache
def _read(app: str) -> dict[str, _Described]:
    file = paths.app(app) / FILE
    if not file.is_file():
        return {}
    return TypeAdapter(dict[str, _Described]).validate_json(file.read_bytes())
