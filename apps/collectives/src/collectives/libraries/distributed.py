"""torch.distributed: Gloo, NCCL (RCCL on AMD GPUs), or MPI if PyTorch was built with it."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from collectives.library import Call, Library
from collectives.operations import ROOT, Operation
from trainkit.exits import ArgumentError
from trainkit.torch.start import start
from trainkit.torch.strategy import Ddp

_OLD_NAMES = {
    "all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor",
}
"""Function -> its name before PyTorch 2.13, which renamed it."""


def connect(device: str, dtype: torch.dtype, backend: str | None) -> Distributed:
    """Connect the ranks with torch.distributed; see `libraries.connect`."""
    if backend == "mpi" and not dist.is_mpi_available():
        raise ArgumentError(
            f"--backend mpi: PyTorch {torch.__version__} was built without MPI; use --library mpi,"
            " or --backend gloo",
            code="library-missing",
        )
    if backend == "nccl" and (device == "cpu" or not torch.cuda.is_available()):
        raise ArgumentError(
            "--backend nccl needs GPUs, and this rank uses the CPU; use --backend gloo",
            code="gpu-unavailable",
        )
    strategy = cast("Ddp", start("ddp", device=device, backend=backend))
    chosen = backend or ("nccl" if strategy.device.type == "cuda" else "gloo")
    return Distributed(strategy, strategy.device, dtype, chosen)


class Distributed(Library):
    """The default process group of torch.distributed."""

    name = "torch"
    in_place = frozenset({"all-reduce", "broadcast", "reduce"})

    def lacks(self, operation: Operation) -> str | None:
        """Perform `operation` once on the smallest buffers, and return the error, if any.

        The operations of a backend depend on its version. A backend that lacks an operation raises
        an error on all ranks before it communicates.
        """
        case = self.prepare(operation, 1)
        try:
            case.call()
            self.synchronize()
        except (RuntimeError, ValueError) as error:
            if self.strategy.lost(error):
                raise
            return f"{self.backend} refuses it: {str(error).splitlines()[0]}"
        return None

    def call(self, operation: Operation, send: Tensor | None, receive: Tensor | None) -> Call:
        """Return the function that performs `operation` once on the given buffers."""
        both: Any = send, receive
        send, receive = both  # all ranks have the buffers of a collective operation
        calls: dict[str, Call] = {
            "all-reduce": partial(dist.all_reduce, send),
            "broadcast": partial(dist.broadcast, send, ROOT),
            "reduce": partial(dist.reduce, send, ROOT),
            "all-gather": partial(_function("all_gather_single"), receive, send),
            "reduce-scatter": partial(_function("reduce_scatter_single"), receive, send),
            "all-to-all": partial(dist.all_to_all_single, receive, send),
            "barrier": dist.barrier,
        }
        if operation.name in calls:
            return calls[operation.name]
        if send is None or receive is None:
            return _idle
        return self._between_two(operation, send, receive)

    def _between_two(self, operation: Operation, send: Tensor, receive: Tensor) -> Call:
        first = self.strategy.rank == 0
        peer = self.strategy.size - 1 if first else 0
        if not operation.windowed:
            return partial(_ping if first else _pong, send, receive, peer)
        # A confirmation of one element, which the OSU micro-benchmarks send, too.
        note = torch.zeros(1, dtype=self.dtype, device=self.device)
        out, back = dist.P2POp(dist.isend, send, peer), dist.P2POp(dist.irecv, receive, peer)
        messages = operation.parts(send.nbytes)
        if operation.traffic == 2:
            return partial(_both, [out, back] * messages)
        if first:
            return partial(_window, [out] * messages, partial(dist.recv, note, peer))
        return partial(_window, [back] * messages, partial(dist.send, note, peer))

    def facts(self) -> dict[str, Any]:
        """Return the versions of PyTorch and NCCL, and the configuration of the group."""
        nccl: str | None = None
        if self.device.type == "cuda":
            nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        return {
            "torch": torch.__version__, "backends": dist.get_backend_config(), "nccl": nccl,
            "gloo": f"part of PyTorch {torch.__version__}",
        }


def _function(name: str) -> Call:
    found: Call = getattr(dist, name, None) or getattr(dist, _OLD_NAMES[name])
    return found


def _idle() -> None:
    """Do nothing, because this rank takes no part in the operation."""


def _ping(send: Tensor, receive: Tensor, peer: int) -> None:
    dist.send(send, peer)
    dist.recv(receive, peer)


def _pong(send: Tensor, receive: Tensor, peer: int) -> None:
    dist.recv(receive, peer)
    dist.send(send, peer)


def _both(messages: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(messages):
        work.wait()


def _window(messages: list[dist.P2POp], confirm: Call) -> None:
    _both(messages)
    confirm()
