"""How the ranks of a training work together: alone, by torch.distributed, or by Horovod.

The loop of an app asks only this interface. An engine averages gradients over the
ranks; everything else about a step is the same on one rank or on many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from trainkit import affinity
from trainkit.exits import AppError, ArgumentError, PeerError
from trainkit.ranks import Ranks, detect

if TYPE_CHECKING:  # `--help` of an app reads the names below, and is not to wait for PyTorch
    import torch
    from torch import Tensor, nn

ENGINES = ("single", "ddp", "horovod")
COMPRESSIONS = ("none", "fp16")

T = TypeVar("T")


class Pending:
    """A sum over the ranks under way."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def result(self) -> list[float]:
        """Wait for the sum and return it; waits for a GPU, too."""
        found: list[float] = self.values.tolist()
        return found


class Engine:
    """One process of a training: here the only one.

    Attributes:
        name: one of `ENGINES`.
        ranks: this process and the others.
        device: where it computes; by default on the CPU.
        communicating: seconds spent waiting for gradients of other ranks so far, beyond
            what was hidden behind the backward pass.
    """

    name = "single"

    def __init__(self, ranks: Ranks | None = None, device: torch.device | None = None) -> None:
        import torch

        self.ranks = ranks or Ranks()
        self.device = device or torch.device("cpu")
        self.communicating = 0.0

    @property
    def rank(self) -> int:
        """Number of this process, 0 writes files and speaks."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Number of processes; the global batch is `size` times the batch per rank."""
        return self.ranks.size

    @property
    def is_main(self) -> bool:
        """Whether this process writes the metrics, the checkpoints and the console."""
        return self.rank == 0

    def distribute(self, network: nn.Module) -> nn.Module:
        """Return the module to call in training, after all ranks have rank 0's weights."""
        return network

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of forward and backward of a micro-batch; `last` of its step."""
        return nullcontext()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Yield when the gradients are averages over the ranks; step inside."""
        yield

    def start_sum(self, values: Tensor) -> Pending:
        """Begin to sum the elements of `values` (1-d) over the ranks, in the background."""
        return Pending(values)

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks."""
        import torch

        numbers = torch.tensor(list(values), dtype=torch.float64)
        return self.start_sum(numbers).result()

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any rank."""
        return self.sum([float(flag)])[0] > 0

    def share(self, value: T) -> T:
        """Return rank 0's `value` (picklable) on every rank."""
        return value

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value` (picklable), in the order of the ranks."""
        return [value]

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Let ranks take as long as they need inside, and wait for each other at its end.

        For what one node may be much slower at than another, as copying data to its disk;
        elsewhere a rank that is minutes late counts as lost.
        """
        yield

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Leave the group of ranks."""

    def lost(self, error: RuntimeError) -> bool:
        """Whether `error` says that another rank is gone."""
        return False

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Give errors of this rank its number, and those of lost connections a meaning.

        Raises:
            PeerError: another rank ended, or the network failed.
        """
        try:
            yield
        except AppError as error:
            if self.size > 1:
                error.rank = self.rank
            raise
        except RuntimeError as error:
            if not self.lost(error):
                raise
            peer = PeerError(
                "another rank ended, or cannot be reached; its own message says why "
                f"({str(error).splitlines()[0]})"
            )
            peer.rank = self.rank
            raise peer from error

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as communication."""
        started = time.perf_counter()
        yield
        self.communicating += time.perf_counter() - started


def start(
    name: str, *, device: str = "auto", backend: str | None = None, compression: str = "none"
) -> Engine:
    """Return the engine `name`, connected with the other ranks of the job.

    Args:
        name: one of `ENGINES`.
        device: "cpu", "gpu", or "auto": the GPU of this local rank where there is one.
        backend: of ddp: gloo, nccl, mpi (default: nccl on GPUs, else gloo).
        compression: "fp16" halves what goes over the network.

    Raises:
        ArgumentError: the launcher's variables do not fit, or something is not there.
        PeerError: the other ranks cannot be reached.
    """
    ranks = detect()
    if name == "single":
        if ranks.size > 1:
            raise ArgumentError(
                f"{ranks.launcher} started {ranks.size} ranks, and --engine single would train "
                "each on its own: say --engine ddp or --engine horovod"
            )
        return Engine(Ranks(), choose(device, 0))
    chosen = choose(device, ranks.local_rank)
    if chosen.type == "cpu":
        bind(ranks)
    if name == "ddp":
        from trainkit.engine_ddp import Ddp

        return Ddp(ranks, chosen, backend, compression)
    from trainkit.engine_horovod import Horovod

    return Horovod(ranks, chosen, compression)


def bind(ranks: Ranks) -> None:
    """Give a rank its share of the node's cores, and as many threads to compute with.

    PyTorch counted the cores when it was loaded: those of the whole node.
    """
    import torch

    cores = affinity.bind(ranks)
    if cores is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(cores)


def choose(wanted: str, local_rank: int) -> torch.device:
    """Return the device `wanted` of this local rank.

    Raises:
        ArgumentError: a GPU is wanted, and there is none for this rank.
    """
    import torch

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
