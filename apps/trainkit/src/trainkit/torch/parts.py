"""PyTorch's networks, optimizers, loss scalers and random numbers as parts of a training."""

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
"""Width in bytes -> integers that stand for a type that NumPy lacks."""


def parts(**stateful: Any) -> dict[str, Part]:
    """Return named parts of modules, optimizers, and whatever else has a `state_dict`."""
    return {name: _part(value) for name, value in stateful.items()}


def load_network(network: nn.Module, state: Mapping[str, Any]) -> None:
    """Give `network` the weights and buffers of a part of a checkpoint.

    Raises:
        ValueError: it is of another network; the message has the entries that differ.
    """
    own = network.state_dict()
    check_shapes(
        {name: tuple(tensor.shape) for name, tensor in own.items()},
        {name: _shape(value) for name, value in state.items()},
    )
    network.load_state_dict({name: tensor_of(value) for name, value in state.items()})


def digest(networks: Iterable[nn.Module]) -> str:
    """Return a SHA-256 over all weights; buffers are each rank's own."""
    total = hashlib.sha256()
    for network in networks:
        for parameter in network.parameters():
            value = array_of(parameter)
            bits = value.bits if isinstance(value, Foreign) else value
            total.update(bits.tobytes())
    return total.hexdigest()


class RandomState:
    """The state of PyTorch's random numbers on every rank: what a rank draws is its own.

    Args:
        strategy: this rank and the others, and the device whose numbers count, too.
    """

    def __init__(self, strategy: TorchStrategy) -> None:
        self._strategy = strategy

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all ranks; all have to ask."""
        device, own = self._strategy.device, {"cpu": torch.get_rng_state().numpy()}
        if device.type == "cuda":
            own["gpu"] = torch.cuda.get_rng_state(device).numpy()
        return {"ranks": self._strategy.gather(own)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this rank's state back."""
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
    """An optimizer, a loss scaler, `RandomState`."""

    def __init__(self, stateful: Any) -> None:
        self._stateful = stateful

    def state_dict(self) -> Mapping[str, Any]:
        found: dict[str, Any] = _changed(self._stateful.state_dict(), Tensor, array_of)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        tensors = _changed(state, np.ndarray | Foreign, tensor_of)
        try:
            self._stateful.load_state_dict(tensors)
        except (LookupError, RuntimeError, TypeError) as error:  # what PyTorch says of anything
            raise ValueError(str(error).partition("\n")[0]) from error
        if isinstance(self._stateful, Optimizer):
            _lay_out(self._stateful)


def _part(value: Any) -> Part:
    return _Network(value) if isinstance(value, nn.Module) else _Stateful(value)


def _lay_out(optimizer: Optimizer) -> None:
    """Store what belongs to each weight in the order in memory of the weight, as it was."""
    for weight, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                values[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def array_of(tensor: Tensor) -> Array | Foreign:
    """Return the values of `tensor`; of one on the CPU they change with it."""
    here = tensor.detach().cpu()
    try:
        found: Array = here.numpy()
    except TypeError:
        width = here.element_size()
        bits = here.view(BITS[width]).numpy().view(f"u{width}")
        return Foreign(bits, str(here.dtype).removeprefix("torch."))
    return found


def tensor_of(value: Array | Foreign) -> Tensor:
    """Return a tensor on the CPU that shares the memory of an array.

    Raises:
        ValueError: it is of a type that PyTorch does not have.
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
        raise ValueError("the checkpoint has an entry that is no array")
    return tuple(bits.shape)


def _changed(value: Any, kind: Any, change: Any) -> Any:
    """Return nested dicts, lists and tuples with what is of a `kind` changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(item, kind, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_changed(item, kind, change) for item in value)
    return value
