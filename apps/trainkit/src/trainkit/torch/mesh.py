"""A strategy for ranks that form a mesh, along whose axes a training divides its work.

The axes of a mesh are the kinds of parallelism of an app, such as data, tensor and pipeline. A rank
has a coordinate on each axis. The methods `sum`, `gather` and `share` include all ranks of the
mesh, as in `Ddp`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks
from trainkit.torch.parts import RandomState
from trainkit.torch.strategy import Ddp, TorchStrategy

REST = 0
"""Placeholder for the size of one axis: the number of ranks divided by the other sizes."""


class Mesh(Ddp):
    """The strategy of a process group whose ranks form a mesh; see `TorchStrategy`.

    Args:
        ranks: rank, local rank and world size of this process.
        device: device of this rank.
        axes: name -> size of each axis; one of the sizes may be `REST`. Ranks that are neighbours
            on the last axis have consecutive numbers. Therefore the last axis should be the axis
            with the most communication.

    Attributes:
        axes: name -> size of each axis.
        mesh: the mesh as PyTorch's `DeviceMesh`.
    """

    name = "mesh"

    def __init__(self, ranks: Ranks, device: torch.device, axes: Mapping[str, int]) -> None:
        self.axes = spread(axes, ranks.size)
        super().__init__(ranks, device, None, "none")
        self.mesh: DeviceMesh = init_device_mesh(
            device.type, tuple(self.axes.values()), mesh_dim_names=tuple(self.axes)
        )

    def agree(self, digest: str) -> bool:
        """Return whether all ranks that hold the same weights have the same digest of them.

        `digest` is the result of `trainkit.torch.sharded.digest` on this rank.
        """
        known: dict[str, str] = {}
        return all(
            known.setdefault(holders, total) == total
            for text in self.gather(digest) for total, _, holders in
            (line.partition(" ") for line in text.splitlines())
        )


def spread(axes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Return the sizes of all axes of a mesh of `ranks` ranks; `REST` becomes a number.

    Raises:
        ArgumentError: the product of the sizes cannot be the number of ranks.
    """
    fixed = math.prod(size for size in axes.values() if size != REST)
    filled = {name: size if size != REST else ranks // fixed for name, size in axes.items()}
    if math.prod(filled.values()) != ranks or ranks < fixed:
        product = " x ".join(f"{name} {size}" for name, size in axes.items() if size != REST)
        way_out = f"start a multiple of {fixed} ranks" if REST in axes.values() else \
            f"start {fixed} ranks"
        raise ArgumentError(
            f"a mesh of {product} does not fit {ranks} ranks: {way_out}", code="ranks-uneven"
        )
    return filled


def seed_by_coordinates(seed: int, strategy: TorchStrategy, shared: Collection[str] = ()) -> None:
    """Seed PyTorch's random numbers, with a different seed at each coordinate of a mesh.

    Args:
        seed: seed of the training.
        strategy: a `Mesh`; with any other strategy, `seed` itself is used.
        shared: axes along which all ranks use the same seed, because they hold copies of the same
            values.
    """
    if isinstance(strategy, Mesh):
        own = [
            strategy.mesh.get_local_rank(axis) for axis in strategy.axes if axis not in shared
        ]
        seed = int.from_bytes(hashlib.sha256(f"{seed} {own}".encode()).digest()[:8], "big") >> 1
    torch.manual_seed(seed)


class MeshRandomState(RandomState):
    """The states of the random number generators of a mesh as a part of a checkpoint.

    A training that resumes in the same mesh draws the same numbers as without an interruption. If
    it resumes in a mesh with other axes or sizes, the ranks get new seeds, which depend on the
    state in the checkpoint.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all ranks, and the mesh; all ranks must call this method."""
        return {**super().state_dict(), "mesh": axes_of(self._strategy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of this rank, if the training has the same mesh as the checkpoint.

        If axes or sizes of the mesh differ, the generators get new seeds instead, which are
        computed from the state of rank 0 in the checkpoint.
        """
        if state["mesh"] == axes_of(self._strategy):
            super().load_state_dict(state)
        else:
            total = hashlib.sha256(state["ranks"][0]["cpu"].numpy().tobytes()).digest()
            seed_by_coordinates(int.from_bytes(total[:8], "big") >> 1, self._strategy)


def axes_of(strategy: TorchStrategy) -> dict[str, int]:
    """Return name -> size for each axis of a mesh; without a mesh, return an empty dict."""
    return strategy.axes if isinstance(strategy, Mesh) else {}
