"""PyTorch's networks, optimizers, loss scalers and random states as parts of a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainkit.parts import Part, check_shapes
from trainkit.statefile import Array, Foreign
from trainkit.torch.strategy import TorchStrategy

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Width in bytes -> integer type as which a tensor is read if NumPy lacks the tensor's type."""


def parts(**stateful: Any) -> dict[str, Part]:
    """Return name -> part of a checkpoint, for objects with a `state_dict`, such as optimizers."""
    return {name: _part(value) for name, value in stateful.items()}


def load_network(network: nn.Module, state: Mapping[str, Any]) -> None:
    """Load the weights and buffers of a checkpoint part into `network`.

    Raises:
        ValueError: the part belongs to another network; the message names the differing entries.
    """
    own = network.state_dict()
    check_shapes(
        {name: tuple(tensor.shape) for name, tensor in own.items()},
        {name: _shape(value) for name, value in state.items()},
    )
    network.load_state_dict({name: tensor_of(value) for name, value in state.items()})


def digest(networks: Iterable[nn.Module]) -> str:
    """Return the SHA-256 of all weights in hexadecimal.

    Buffers are excluded, because they may differ between ranks.
    """
    total = hashlib.sha256()
    for network in networks:
        for parameter in network.parameters():
            value = array_of(parameter)
            bits = value.bits if isinstance(value, Foreign) else value
            total.update(bits.tobytes())
    return total.hexdigest()


class RandomState:
    """The state of PyTorch's random number generators on every rank.

    Args:
        strategy: the strategy that connects the ranks; its device may have a generator, too.
    """

    def __init__(self, strategy: TorchStrategy) -> None:
        self._strategy = strategy

    def state_dict(self) -> dict[str, Any]:
        """Return the random states of all ranks; all ranks must call this method."""
        device, own = self._strategy.device, {"cpu": torch.get_rng_state().numpy()}
        if device.type == "cuda":
            own["gpu"] = torch.cuda.get_rng_state(device).numpy()
        return {"ranks": self._strategy.gather(own)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore this rank's random state from the states of all ranks (`state_dict`)."""
        own = state["ranks"][self._strategy.rank]
        torch.set_rng_state(own["cpu"])
        if self._strategy.device.type == "cuda":
            if "gpu" not in own:
                raise ValueError("the checkpoint was written on a CPU")
            torch.cuda.set_rng_state(own["gpu"], self._strategy.device)


class _Network:
    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def state_dict(self) -> Mapping[str, Any]:
        return {name: array_of(tensor) for name, tensor in self._network.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_network(self._network, state)


class _Stateful:
    """A checkpoint part: the state of an optimizer, a loss scaler or a `RandomState`, as arrays."""

    def __init__(self, stateful: Any) -> None:
        self._stateful = stateful

    def state_dict(self) -> Mapping[str, Any]:
        found: dict[str, Any] = _changed(self._stateful.state_dict(), Tensor, array_of)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tensors = _changed(state, np.ndarray | Foreign, tensor_of)
        try:
            self._stateful.load_state_dict(tensors)
        except (LookupError, RuntimeError, TypeError) as error:  # state of another object
            raise ValueError(str(error).partition("\n")[0]) from error
        if isinstance(self._stateful, Optimizer):
            _lay_out(self._stateful)


def _part(value: Any) -> Part:
    return _Network(value) if isinstance(value, nn.Module) else _Stateful(value)


def _lay_out(optimizer: Optimizer) -> None:
    """Copy each state tensor of an optimizer to the memory layout (strides) of its weight."""
    for weight, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                values[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def array_of(tensor: Tensor) -> Array | Foreign:
    """Return the values of `tensor` as an array; the array of a CPU tensor shares its memory."""
    on_cpu = tensor.detach().cpu()
    try:
        found: Array = on_cpu.numpy()
    except TypeError:
        width = on_cpu.element_size()
        bits = on_cpu.view(BITS[width]).numpy().view(f"u{width}")
        return Foreign(bits, str(on_cpu.dtype).removeprefix("torch."))
    return found


def tensor_of(value: Array | Foreign) -> Tensor:
    """Return a CPU tensor that shares memory with an array.

    Raises:
        ValueError: PyTorch does not have the type of the array.
    """
    if not isinstance(value, Foreign):
        try:
            return torch.from_numpy(value)
        except TypeError as error:
            raise ValueError(f"PyTorch has no type {value.dtype}") from error
    kind = getattr(torch, value.dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"PyTorch has no type {value.dtype}")
    return torch.from_numpy(value.bits.view(f"i{value.bits.itemsize}")).view(kind)


def _shape(value: object) -> tuple[int, ...]:
    bits = value.bits if isinstance(value, Foreign) else value
    if not isinstance(bits, np.ndarray):
        raise ValueError("the checkpoint has an entry that is not an array")
    return tuple(bits.shape)


def _changed(value: Any, kind: Any, change: Any) -> Any:
    """Return a copy of nested dicts and lists; `change` replaces each value of the type `kind`."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(item, kind, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_changed(item, kind, change) for item in value)
    return value
