"""The strategy of a training, connected with the other ranks of the job."""

from __future__ import annotations

import os

import torch

from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, detect
from trainkit.torch.horovod import Horovod
from trainkit.torch.strategy import Ddp, TorchStrategy


def start(
    name: str, *, device: str = "auto", backend: str | None = None, compression: str = "none"
) -> TorchStrategy:
    """Return the strategy `name`, connected with the other ranks of the job.

    Args:
        name: one of `trainkit.torch.STRATEGIES`.
        device: "cpu", "gpu", or "auto": the GPU of this local rank where there is one.
        backend: of ddp: gloo, nccl (default: nccl on GPUs, else gloo).
        compression: "fp16" halves what goes over the network.

    Raises:
        ArgumentError: the launcher's variables do not fit, or something is not there.
        PeerError: the other ranks cannot be reached.
    """
    ranks = detect()
    if name == "single":
        if ranks.size > 1:
            raise ArgumentError(
                f"{ranks.launcher} started {ranks.size} ranks, and --strategy single would train "
                "each on its own: say --strategy ddp or --strategy horovod"
            )
        return TorchStrategy(Ranks(), choose(device, 0))
    chosen = choose(device, ranks.local_rank)
    if chosen.type == "cpu":
        bind(ranks)
    if name == "ddp":
        return Ddp(ranks, chosen, backend, compression)
    return Horovod(ranks, chosen, compression)


def bind(ranks: Ranks) -> None:
    """Give a rank its share of the node's cores, and as many threads to compute with.

    PyTorch counted the cores when it was loaded: those of the whole node.
    """
    cores = affinity.bind(ranks)
    if cores is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)


def choose(wanted: str, local_rank: int) -> torch.device:
    """Return the device `wanted` of this local rank.

    Raises:
        ArgumentError: a GPU is wanted, and there is none for this rank.
    """
    count = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and count == 0):
        return torch.device("cpu")
    # A launcher may show each rank its own GPU only, which then is number 0.
    number = 0 if count == 1 else local_rank
    if number >= count:
        raise ArgumentError(
            f"local rank {local_rank} has no GPU: PyTorch sees {count}; start fewer ranks per "
            "node, or say --device cpu"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)
