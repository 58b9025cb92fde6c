"""Weights that are distributed over ranks: norms, digests, and storage in a checkpoint.

A rank holds the whole of a plain tensor, but only one piece of a DTensor. Tensors are identified by
their names. If two ranks hold the same piece of a tensor, the two pieces have equal values.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from trainkit.parts import check_shapes
from trainkit.pieces import Piece, Stored
from trainkit.statefile import Foreign
from trainkit.torch.parts import array_of, tensor_of
from trainkit.torch.strategy import TorchStrategy

Shape = tuple[int, ...]
Named = Mapping[str, Tensor]
BETWEEN = ":"  # separates the names of a weight and of a value of the optimizer


@dataclass(frozen=True)
class Place:
    """The position of the piece that this rank holds in the whole tensor.

    Attributes:
        whole: shape of the whole tensor.
        offsets: index of the first element of the piece in each dimension.
        shape: shape of the piece.
        holders: the ranks that hold this piece.
    """

    whole: Shape
    offsets: Shape
    shape: Shape
    holders: tuple[int, ...] = (0,)

    @property
    def key(self) -> tuple[Shape, Shape]:
        """Offsets and shape, which identify a piece among the pieces of one tensor."""
        return self.offsets, self.shape


def places(tensors: Named, strategy: TorchStrategy) -> dict[str, Place]:
    """Return tensor name -> place, in the whole tensor, of the piece that this rank holds.

    All ranks must call this function.
    """
    own = {name: _place(tensor) for name, tensor in tensors.items()}
    if strategy.size == 1:
        return own
    holders: dict[tuple[str, Any], list[int]] = {}
    for rank, found in enumerate(strategy.gather({name: at.key for name, at in own.items()})):
        for entry in found.items():
            holders.setdefault(entry, []).append(rank)
    return {
        name: Place(at.whole, at.offsets, at.shape, tuple(holders[name, at.key]))
        for name, at in own.items()
    }


def _place(tensor: Tensor) -> Place:
    """Return the shape of `tensor`, and offsets and shape of the piece that this rank holds.

    The ranks that hold the piece are not determined here: `holders` keeps its default.
    """
    whole = tuple(tensor.shape)
    if not isinstance(tensor, DTensor):
        return Place(whole, (0,) * tensor.ndim, whole)
    mesh, how = tensor.device_mesh, tensor.placements
    return Place(whole, *piece_at(whole, how, mesh.shape, mesh.get_coordinate() or ()))


def piece_at(
    whole: Shape, placements: Sequence[Any], ranks: Sequence[int], coordinates: Sequence[int]
) -> tuple[Shape, Shape]:
    """Return offsets and shape of the piece of a tensor on the rank at a coordinate of a mesh.

    Tensor parallelism divides a tensor first, and FSDP then divides the pieces, although the axis
    of FSDP precedes the axis of tensor parallelism in the mesh. `_StridedShard` marks the placement
    by FSDP. PyTorch's `compute_local_shape_and_global_offset` (2.13) divides in the order of the
    axes. Therefore it returns wrong shapes if the pieces have different sizes.

    Args:
        whole: shape of the whole tensor.
        placements: placement of the tensor on each axis of the mesh, in PyTorch's form.
        ranks: size of each axis.
        coordinates: coordinate on each axis.
    """
    shape, offsets = list(whole), [0] * len(whole)
    axes = zip(placements, ranks, coordinates, strict=True)
    for how, parts, index in sorted(axes, key=lambda axis: isinstance(axis[0], _StridedShard)):
        if isinstance(how, Shard | _StridedShard):
            size = shape[how.dim]
            each = -(-size // parts)  # as in torch.chunk
            first = min(size, each * index)
            offsets[how.dim] += first
            shape[how.dim] = min(each, size - first)
    return tuple(offsets), tuple(shape)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's piece of `tensor`; it shares the memory of `tensor`."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def gradient_norm(parameters: Named, at: Mapping[str, Place], strategy: TorchStrategy) -> Tensor:
    """Return the Euclidean norm of the gradient of all weights on all ranks, a scalar tensor.

    Each rank sums the squares of the elements of its pieces, each divided by the number of ranks
    that hold the piece. Therefore the sum over all ranks counts every element once, for any
    combination of parallelism.
    """
    total = torch.zeros((), dtype=torch.float64, device=strategy.device)
    found = [(at[name], p.grad) for name, p in parameters.items() if p.grad is not None]
    norms = torch._foreach_norm([local(gradient) for _, gradient in found])
    for (place, _), norm in zip(found, norms, strict=True):
        total += norm.double().square() / len(place.holders)
    return strategy.all_sum(total).sqrt()


@torch.no_grad()
def scale_gradients(parameters: Named, factor: Tensor) -> None:
    """Multiply all gradients of this rank by the scalar tensor `factor`."""
    gradients = [local(p.grad) for p in parameters.values() if p.grad is not None]
    torch._foreach_mul_(gradients, factor.float())


def digest(parameters: Named, at: Mapping[str, Place]) -> str:
    """Return the SHA-256 of the weights of this rank, one line for each group of ranks.

    The ranks of a group hold the same pieces of weights. A line consists of the digest of these
    pieces, a space, and the ranks of the group. If rank 0 alone holds all weights, the result is
    the digest alone. `Mesh.agree` compares the lines of the ranks of a group.
    """
    totals: dict[tuple[int, ...], Any] = {}
    for name in sorted(parameters):
        value = array_of(local(parameters[name]))
        bits = value.bits if isinstance(value, Foreign) else value
        total = totals.setdefault(at[name].holders, hashlib.sha256())
        total.update(name.encode() + bits.tobytes())
    lines: dict[str, str] = {
        ",".join(map(str, ranks)): total.hexdigest() for ranks, total in totals.items()
    }
    if len(lines) == 1 and "0" in lines:
        return lines["0"]
    return "\n".join(f"{total} {ranks}" for ranks, total in lines.items())


class ShardedWeights:
    """The weights of a network for a checkpoint to which each rank writes its pieces.

    Args:
        parameters: name -> weight on this rank.
        at: name -> place of this rank's piece of the weight, the result of `places`.
        strategy: the strategy that connects the ranks.
    """

    def __init__(
        self, parameters: Named, at: Mapping[str, Place], strategy: TorchStrategy
    ) -> None:
        self._parameters, self._at, self._rank = parameters, at, strategy.rank

    def state_dict(self) -> dict[str, Any]:
        """Return weight name -> the piece that this rank writes to a checkpoint."""
        return {
            name: _piece(tensor, name, self._at[name], self._rank)
            for name, tensor in self._parameters.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy this rank's pieces of the weights from the checkpoint data `state`.

        Raises:
            ValueError: the weights belong to another network.
        """
        check_shapes(
            {name: self._at[name].whole for name in self._parameters},
            {name: array.shape for name, array in state.items() if name in self._parameters},
        )
        with torch.no_grad():
            for name, tensor in self._parameters.items():
                local(tensor).copy_(_read(state[name], self._at[name]))


class ShardedOptimizer:
    """The state of an optimizer for a checkpoint to which each rank writes its pieces.

    The checkpoint contains only the values that the optimizer keeps for each weight, such as the
    two moments of Adam. Learning rate and weight decay are not stored, because the app sets them
    from its options whenever it starts.

    Args:
        states: function that returns the dict weight -> values of the optimizer on this rank.
        parameters: name -> weight, only of the weights that the optimizer of this rank updates.
        at: name -> place of this rank's piece of the weight.
        strategy: the strategy that connects the ranks.
    """

    def __init__(
        self, states: Callable[[], dict[Tensor, Any]], parameters: Named,
        at: Mapping[str, Place], strategy: TorchStrategy,
    ) -> None:
        self._states, self._parameters, self._at = states, parameters, at
        self._strategy = strategy
        self._own: dict[str, Place] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the pieces of the optimizer's values that this rank writes to a checkpoint.

        All ranks must call this method.
        """
        states = self._states()
        values = {
            f"{name}{BETWEEN}{key}": value
            for name, weight in self._parameters.items()
            for key, value in states.get(weight, {}).items()
        }
        # With ZeRO, several ranks hold a weight, but only the rank that updates it has the values.
        if any(self._strategy.gather(values.keys() != self._own.keys())):
            self._own = places(values, self._strategy)
        rank = self._strategy.rank
        return {name: _piece(v, name, self._own[name], rank) for name, v in values.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load this rank's pieces of the optimizer's values from the checkpoint data `state`.

        Raises:
            ValueError: the values belong to another network.
        """
        states = self._states()
        keys = {name.partition(BETWEEN)[2] for name in state}
        for name, weight in self._parameters.items():
            found = {key: state[full] for key in keys if (full := f"{name}{BETWEEN}{key}") in state}
            if state and not found:
                raise ValueError(f"the checkpoint has no values of the optimizer for {name}")
            states[weight] = {
                key: _like(weight, array, self._at[name]) for key, array in found.items()
            }


def _like(weight: Tensor, array: Stored, at: Place) -> Tensor:
    """Return a value of the optimizer from a checkpoint, on the device of its weight.

    If weight and value have the same shape, the value is divided among the ranks like the weight.

    The number of steps is on this device, too, as the fused optimizers of PyTorch expect.
    """
    device = local(weight).device
    if array.shape != at.whole or not array.shape:
        return tensor_of(array.read()).to(device)
    values = _read(array, at).to(device)
    if not isinstance(weight, DTensor):
        return values
    return DTensor.from_local(
        values, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape,
        stride=weight.stride(),
    )


def _read(array: Stored, at: Place) -> Tensor:
    return tensor_of(array.read(at.offsets, at.shape))


def _piece(tensor: Tensor, name: str, at: Place, rank: int) -> Piece:
    """Return this rank's piece of `tensor`.

    If several ranks hold the piece, a hash of `name` selects the rank that writes it.
    """
    writer = at.holders[zlib.crc32(name.encode()) % len(at.holders)]
    return Piece(array_of(local(tensor)), at.whole, at.offsets, owned=rank == writer)
