"""The interface of distributed strategies for any framework, and the strategy of one process.

`trainkit.torch` and `trainkit.tensorflow` contain the strategies of PyTorch and TensorFlow, which
connect ranks and average tensors.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from trainkit.exits import AppError, PeerError
from trainkit.meters import Gpu
from trainkit.ranks import Ranks

T = TypeVar("T")


class Pending(Protocol):
    """The interface of a sum over the ranks that may still be in progress."""

    def result(self) -> list[float]:
        """Wait for the sum, and return it."""
        ...


class Strategy:
    """The strategy of a training with one process, and the interface of all other strategies.

    Attributes:
        name: name of the strategy, as in `--strategy`.
        pending: maximum number of steps whose losses are not yet summed over the ranks when the
            next step starts.
        ranks: numbers of this process in the job and on its node.
        communicating: seconds spent waiting for gradients of other ranks so far, without the
            communication that overlapped with the backward pass.
    """

    name = "single"
    pending = 1

    def __init__(self, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks()
        self.communicating = 0.0

    @property
    def rank(self) -> int:
        """The number of this process; rank 0 writes files and prints."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """The world size; the global batch is `size` times the batch per rank."""
        return self.ranks.size

    @property
    def trainers(self) -> int:
        """The number of ranks, from rank 0 on, that run the training loop."""
        return self.size

    @property
    def unmetered(self) -> str | None:
        """The reason why the training loop's ranks cannot read all energy meters, or None."""
        return None

    @property
    def backend(self) -> str | None:
        """The library that averages tensors over the ranks: gloo, mpi, nccl or grpc.

        It is None if the strategy uses no library.
        """
        return None

    @property
    def is_main(self) -> bool:
        """Whether this process writes the metrics and the checkpoints, and prints."""
        return self.rank == 0

    def facts(self) -> dict[str, Any]:
        """Return the facts of the framework for `environment.json`: device, GPU, threads."""
        return {"device": "cpu", "gpu": None, "threads": {}}

    def gpu(self) -> Gpu | None:
        """Return the GPU of this rank, for its energy meter, or None if the rank uses a CPU."""
        return None

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks, in double precision."""
        return [float(value) for value in values]

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any rank."""
        return self.sum([float(flag)])[0] > 0

    def share(self, value: T) -> T:
        """Return rank 0's `value` (picklable) on every rank."""
        return value

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value` (picklable), in the order of the ranks."""
        return [value]

    def side_channel(self) -> Callable[[Any], list[Any]]:
        """Return a function like `gather` that a second thread may call during the training.

        All ranks must call this method at the same moment.
        """
        return lambda value: [value]

    def agree(self, digest: str) -> bool:
        """Return whether all ranks have the same `digest` of their weights."""
        return not self.any(digest != self.share(digest))

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Allow ranks any delay in the `with` block, and synchronize them at its end.

        Use this method if durations differ between nodes, as for copies to a local disk. Outside of
        such a block, a rank that is minutes late counts as lost.
        """
        yield

    def peak_memory(self) -> int:
        """Return the peak memory of this process on its device, in bytes."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux reports KiB

    def synchronize(self) -> None:
        """Wait until the device has finished its work."""

    def close(self) -> None:
        """End the communication with the other ranks."""

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        return False

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Add the rank number to errors, and convert errors of lost connections to PeerError.

        Raises:
            PeerError: another rank ended, or the network failed.
        """
        try:
            yield
        except AppError as error:
            if self.size > 1:
                error.rank = self.rank
            raise
        except Exception as error:
            if not self.lost(error):
                raise
            peer = PeerError(
                "another rank ended, or cannot be reached; its own message has the cause "
                f"({str(error).splitlines()[0]})"
            )
            peer.rank = self.rank
            raise peer from error

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Add the duration of the `with` block in seconds to `communicating`."""
        started = time.perf_counter()
        yield
        self.communicating += time.perf_counter() - started
