"""Refuse a training whose weights, gradients and optimizer state do not fit into memory.

The check is made before the network is built.
"""

from __future__ import annotations

import torch

from language_model import memory
from language_model.job import Job
from trainkit import node_memory
from trainkit.exits import ArgumentError
from trainkit.torch.strategy import TorchStrategy

GIB = 1 << 30


def check(job: Job, strategy: TorchStrategy) -> None:
    """Refuse weights, gradients and optimizer states larger than the memory of this rank.

    Raises:
        ArgumentError: the states do not fit into the memory.
    """
    needed = max(one.states for one in memory.of_ranks(job))
    if strategy.device.type == "cuda":
        refuse(needed, torch.cuda.mem_get_info(strategy.device)[1], "the memory of a GPU")
    else:
        each = node_memory.total_bytes() / strategy.ranks.local_size
        refuse(needed, each, "the memory of the node for each rank")
        # Not divided: each rank may have a control group of its own.
        limit = node_memory.smallest_limit()
        if limit is not None:
            refuse(needed, limit, "the limit of the control group, which the batch system sets,")


def refuse(needed: float, available: float, where: str) -> None:
    """Refuse a layout that needs more bytes than are available.

    Raises:
        ArgumentError: the layout does not fit; the message names both sizes and possible remedies.
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
