"""Horovod, whose background thread combines small tensors and starts an operation in each cycle.

`--fusion-tensors N` divides the buffer of an all-reduce into N tensors that are submitted one after
the other, like the gradients of a network. Horovod combines those that are ready in one cycle, up
to HOROVOD_FUSION_THRESHOLD bytes (Sergeev and Del Balso, arXiv:1802.05799, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from collectives.library import Call, Library
from collectives.operations import ROOT, Operation
from trainkit.torch.horovod import Horovod as Ranks
from trainkit.torch.start import start


def connect(device: str, dtype: torch.dtype, tensors: int) -> Horovod:
    """Connect the ranks with Horovod; see `libraries.connect`."""
    strategy = cast("Ranks", start("horovod", device=device))
    return Horovod(strategy, strategy.device, dtype, tensors)


class Horovod(Library):
    """The ranks of a Horovod job.

    Args:
        strategy: the strategy that connects the ranks.
        device: device of the buffers.
        dtype: number format of the buffers.
        tensors: number of tensors of an all-reduce.
    """

    name = "horovod"
    in_place = frozenset({"all-reduce", "broadcast"})
    returned = frozenset({"all-gather", "reduce-scatter", "all-to-all"})

    def __init__(
        self, strategy: Ranks, device: torch.device, dtype: torch.dtype, tensors: int
    ) -> None:
        import horovod.torch as hvd

        self._hvd: Any = hvd
        self._tensors = tensors
        super().__init__(strategy, device, dtype, strategy.backend)

    def lacks(self, operation: Operation) -> str | None:
        """Return the reason if Horovod lacks `operation` for the number format, otherwise None."""
        if operation.pair:
            return "Horovod has no messages between two ranks"
        if operation.name == "reduce":
            return "Horovod has no reduction to one rank"
        case = self.prepare(operation, 1)
        try:
            case.call()
            self.synchronize()
        except (RuntimeError, ValueError, TypeError) as error:
            return f"Horovod refuses it: {str(error).splitlines()[0]}"
        return None

    def call(self, operation: Operation, send: Tensor | None, receive: Tensor | None) -> Call:
        """Return the function that performs `operation` once on the given buffers.

        Horovod matches the tensors of the ranks by their names.
        """
        hvd = self._hvd
        if operation.name == "barrier":
            return cast("Call", hvd.barrier)
        assert send is not None  # noqa: S101 - all ranks send
        name = f"{operation.name}.{len(send)}"
        if operation.name == "all-reduce" and self._tensors > 1:
            return partial(_fused, hvd, send.tensor_split(self._tensors), name)
        return cast("Call", {
            "all-reduce": partial(hvd.allreduce_, send, op=hvd.Sum, name=name),
            "broadcast": partial(hvd.broadcast_, send, ROOT, name=name),
            "all-gather": partial(hvd.allgather, send, name=name),
            "reduce-scatter": partial(hvd.reducescatter, send, op=hvd.Sum, name=name),
            "all-to-all": partial(hvd.alltoall, send, name=name),
        }[operation.name])

    def facts(self) -> dict[str, Any]:
        """Return the version of Horovod, the libraries it was built with, and `fusion_tensors`.

        `fusion_tensors` is the number of tensors into which the buffer of an all-reduce is divided.
        """
        import horovod

        hvd = self._hvd
        return {
            "horovod": horovod.__version__, "mpi": bool(hvd.mpi_built()),
            "gloo": bool(hvd.gloo_built()), "nccl": int(hvd.nccl_built()),
            "fusion_tensors": self._tensors,
        }


def _fused(hvd: Any, tensors: Sequence[Tensor], name: str) -> None:
    handles = [
        hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"{name}.{number}")
        for number, tensor in enumerate(tensors) if len(tensor)
    ]
    for handle in handles:
        hvd.synchronize(handle)
