"""Refuse a training whose weights, gradients and optimizer state cannot fit, before it is built."""

from __future__ import annotations

import os

import torch

from language_model import memory
from language_model.job import Job
from trainkit.exits import ArgumentError
from trainkit.torch.strategy import TorchStrategy

GIB = 1 << 30


def check(job: Job, strategy: TorchStrategy) -> None:
    """Refuse states that are larger than the memory of this rank, whatever the activations need.

    Raises:
        ArgumentError: they do not fit.
    """
    needed = max(one.states for one in memory.of_ranks(job))
    if strategy.device.type == "cuda":
        refuse(needed, torch.cuda.mem_get_info(strategy.device)[1], "the memory of a GPU")
    else:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        refuse(needed, whole / strategy.ranks.local_size, "the memory of the node for each rank")


def refuse(needed: float, available: float, where: str) -> None:
    """Refuse a layout that needs more bytes than are available.

    Raises:
        ArgumentError: it does not fit; the message has both sizes and ways out.
    """
    if needed > available:
        raise ArgumentError(
            f"a rank needs {gib(needed)} of memory, and {where} is {gib(available)}: divide the "
            "states (--data-parallel fsdp, --tensor-parallel, --pipeline-parallel), use more "
            "ranks or more --micro-batches, or --recompute full",
            code="memory-insufficient",
        )


def gib(bytes_: float) -> str:
    """Return a number of bytes in GiB."""
    return f"{bytes_ / GIB:.3f} GiB"
