"""MPI by mpi4py, on buffers in main memory, or on GPUs if the MPI library can read their memory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from mpi4py import MPI
from torch import Tensor

from collectives.library import Call, Library
from collectives.operations import ROOT, Operation
from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, check_size, detect
from trainkit.strategy import Strategy
from trainkit.torch.start import choose
from trainkit.torch.strategy import TorchStrategy

T = TypeVar("T")

LARGEST_COUNT = (1 << 31) - 1
"""Largest number of elements of a call before MPI 4.0, which added functions for larger numbers."""

GPU_VARIABLES = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "MV2_USE_ROCM")
"""Environment variables that make Cray MPICH and MVAPICH2 read the memory of GPUs."""

_NOTE = bytearray(1)


def connect(device: str, dtype: torch.dtype) -> Mpi:
    """Connect the ranks with MPI; see `libraries.connect`."""
    ranks = detect()
    check_size(ranks, MPI.COMM_WORLD.size, "MPI")
    direct = reads_gpu_memory()
    if device == "gpu" and not direct:
        raise ArgumentError(
            "--device gpu: this MPI library is not known to read the memory of GPUs"
            f" ({MPI.Get_library_version().split(',')[0]}); use --device cpu, or --library torch",
            code="gpu-unavailable",
        )
    chosen = choose(device if direct else "cpu", ranks.local_rank)
    if chosen.type == "cpu":
        affinity.bind(ranks)
    strategy = MpiStrategy(MPI.COMM_WORLD.Dup(), ranks, chosen)
    return Mpi(strategy, chosen, dtype, MPI.Get_library_version().split(",")[0].strip())


def reads_gpu_memory() -> bool:
    """Return whether the MPI library is known to accept buffers in the memory of a GPU.

    Open MPI and libraries based on it have functions for this query (mpi-ext.h); other libraries
    have environment variables.
    """
    if any(os.environ.get(name) == "1" for name in GPU_VARIABLES):
        return True
    for path in _mapped("libmpi"):
        library = ctypes.CDLL(path)
        for name in ("MPIX_Query_cuda_support", "MPIX_Query_rocm_support"):
            if hasattr(library, name) and getattr(library, name)():
                return True
    return False


def _mapped(word: str) -> list[str]:
    """Return the paths of the loaded libraries whose file name begins with `word`."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if Path(path).name.startswith(word))


class MpiStrategy(TorchStrategy):
    """The ranks of MPI_COMM_WORLD, with a separate communicator for what is not measured.

    With this communicator, the ranks agree (for example, on the operations to leave out), and
    collect the measured times.
    """

    name = "mpi"

    def __init__(self, comm: MPI.Intracomm, ranks: Ranks, device: torch.device) -> None:
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(Ranks(ranks.launcher, comm.rank, comm.size, node.rank, node.size), device)
        node.Free()
        self._comm = comm

    def sum(self, values: Any) -> list[float]:
        """Return the sums of `values` over the ranks."""
        rows = self.gather([float(value) for value in values])
        return [sum(column) for column in zip(*rows, strict=True)]

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        shared: T = self._comm.bcast(value)
        return shared

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of the ranks."""
        return self._comm.allgather(value)

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        return isinstance(error, MPI.Exception)


class Mpi(Library):
    """MPI_COMM_WORLD; collective operations have separate buffers to send and to receive."""

    name = "mpi"
    in_place = frozenset({"broadcast"})

    def __init__(
        self, strategy: Strategy, device: torch.device, dtype: torch.dtype, backend: str
    ) -> None:
        super().__init__(strategy, device, dtype, backend)
        self._comm = MPI.COMM_WORLD
        # mpi4py names no MPI datatype for 16-bit floats, so their bits move as integers.
        self._type = MPI.FLOAT if dtype == torch.float32 else MPI.INT16_T

    def lacks(self, operation: Operation) -> str | None:
        """Return the reason if MPI lacks `operation` for the number format, otherwise None."""
        if operation.reduces and self._type != MPI.FLOAT:
            return f"MPI defines no sum of {str(self.dtype).removeprefix('torch.')}"
        return None

    @property
    def most_elements(self) -> int | None:
        """The largest number of elements that one rank can send to another one in a call.

        None: the library has no limit.
        """
        return None if MPI.Get_version() >= (4, 0) else LARGEST_COUNT

    def call(self, operation: Operation, send: Tensor | None, receive: Tensor | None) -> Call:
        """Return the function that performs `operation` once on the given buffers."""
        comm, out, back = self._comm, self._message(send), self._message(receive)
        at_root = back if comm.rank == ROOT else None
        calls: dict[str, Call] = {
            "all-reduce": partial(comm.Allreduce, out, back),
            "broadcast": partial(comm.Bcast, out),
            "reduce": partial(comm.Reduce, out, at_root),
            "all-gather": partial(comm.Allgather, out, back),
            "reduce-scatter": partial(comm.Reduce_scatter_block, out, back),
            "all-to-all": partial(comm.Alltoall, out, back),
            "barrier": comm.Barrier,
        }
        if operation.name in calls:
            return calls[operation.name]
        if send is None:
            return _idle
        return self._between_two(operation, out, back, operation.parts(send.nbytes))

    def _between_two(self, operation: Operation, out: Any, back: Any, messages: int) -> Call:
        comm = self._comm
        first = comm.rank == 0
        peer = comm.size - 1 if first else 0
        if not operation.windowed:
            return partial(_ping if first else _pong, comm.Send, comm.Recv, out, back, peer)
        outgoing = [partial(comm.Isend, out, peer)] * messages
        incoming = [partial(comm.Irecv, back, peer)] * messages
        if operation.traffic == 2:
            return partial(_started, incoming + outgoing)
        if first:
            return partial(_window, outgoing, partial(comm.Recv, _NOTE, peer))
        return partial(_window, incoming, partial(comm.Send, _NOTE, peer))

    def _message(self, buffer: Tensor | None) -> Any:
        """Return `buffer` as mpi4py accepts it: memory and MPI datatype."""
        if buffer is None:
            return None
        plain = buffer if self._type == MPI.FLOAT else buffer.view(torch.int16)
        return [plain.numpy() if self.device.type == "cpu" else plain, self._type]

    def barrier(self) -> None:
        """Wait until all ranks have arrived, and their devices have finished."""
        self.synchronize()
        self._comm.Barrier()

    def facts(self) -> dict[str, Any]:
        """Return the versions of MPI, and the components of Open MPI that are loaded."""
        return {
            "mpi": MPI.Get_library_version().strip("\x00 \n"),
            "standard": ".".join(map(str, MPI.Get_version())),
            "components": [Path(path).stem for path in [
                *_mapped("mca_pml_"), *_mapped("mca_btl_"), *_mapped("mca_mtl_"),
                *_mapped("libuct_"), *_mapped("libfabric"),
            ]],
        }


def _idle() -> None:
    """Do nothing, because this rank takes no part in the operation."""


def _ping(send: Call, recv: Call, out: Any, back: Any, peer: int) -> None:
    send(out, peer)
    recv(back, peer)


def _pong(send: Call, recv: Call, out: Any, back: Any, peer: int) -> None:
    recv(back, peer)
    send(out, peer)


def _started(messages: Sequence[Call]) -> None:
    MPI.Request.Waitall([start() for start in messages])


def _window(messages: Sequence[Call], confirm: Call) -> None:
    MPI.Request.Waitall([start() for start in messages])
    confirm()
