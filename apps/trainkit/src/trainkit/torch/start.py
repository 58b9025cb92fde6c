"""Start the strategy of a training on the device and the cores of this rank."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, detect
from trainkit.torch.horovod import Horovod
from trainkit.torch.mesh import Mesh
from trainkit.torch.strategy import Ddp, TorchStrategy


def start(
    name: str, *, device: str = "auto", backend: str | None = None, compression: str = "none",
    axes: Mapping[str, int] | None = None,
) -> TorchStrategy:
    """Return the strategy `name`, connected with the other ranks of the job.

    Args:
        name: one of `trainkit.torch.STRATEGIES`, or "mesh".
        device: "cpu", "gpu", or "auto": the GPU of this local rank if there is one.
        backend: backend of ddp: gloo or nccl (default: nccl on GPUs, else gloo).
        compression: "fp16" halves the network traffic of gradients.
        axes: name -> size of each axis of a mesh; see `trainkit.torch.mesh`.

    Raises:
        ArgumentError: the launcher does not fit the strategy, or a device or package is missing.
        PeerError: the other ranks cannot be reached.
    """
    ranks = detect()
    if name == "single":
        if ranks.size > 1:
            raise ArgumentError(
                f"{ranks.launcher} started {ranks.size} ranks, and --strategy single would train "
                f"each on its own: use {_others(axes)}",
                code="ranks-unconnected",
            )
        return TorchStrategy(Ranks(), choose(device, 0))
    chosen = choose(device, ranks.local_rank)
    if chosen.type == "cpu":
        bind(ranks)
    if name == Mesh.name:
        return Mesh(ranks, chosen, axes or {})
    if name == "ddp":
        return Ddp(ranks, chosen, backend, compression)
    return Horovod(ranks, chosen, compression)


def _others(axes: Mapping[str, int] | None) -> str:
    """Return the options that select a strategy for several ranks, as text for a message."""
    return "--strategy ddp or --strategy horovod" if axes is None else f"--strategy {Mesh.name}"


def bind(ranks: Ranks) -> None:
    """Bind a rank to its share of the node's cores, and set the number of threads accordingly.

    PyTorch would use too many threads: it counted the cores of the whole node when it was loaded.
    """
    cores = affinity.bind(ranks)
    if cores is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)


def choose(wanted: str, local_rank: int) -> torch.device:
    """Return the device for this local rank; `wanted` is the kind that the user requested.

    Raises:
        ArgumentError: a GPU is requested, and this rank has none.
    """
    count = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and count == 0):
        return torch.device("cpu")
    # Some launchers show each rank only its own GPU, which then has the number 0.
    number = 0 if count == 1 else local_rank
    if number >= count:
        raise ArgumentError(
            f"local rank {local_rank} has no GPU: PyTorch sees {count}; start fewer ranks per "
            "node, or use --device cpu",
            code="gpu-unavailable",
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)
