"""How the ranks of a training work together, as far as no framework is needed for it.

Here is the one process that is alone. `trainkit.torch` and `trainkit.tensorflow` have the
strategies of their frameworks, which connect ranks and average what these have computed.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from trainkit.exits import AppError, PeerError
from trainkit.ranks import Ranks

T = TypeVar("T")


class Pending(Protocol):
    """A sum over the ranks under way."""

    def result(self) -> list[float]:
        """Wait for the sum and return it."""
        ...


class Strategy:
    """One process of a training: here the only one.

    Attributes:
        name: as `--strategy` says it.
        ranks: this process and the others.
        communicating: seconds spent waiting for gradients of other ranks so far, beyond
            what was hidden behind the backward pass.
    """

    name = "single"

    def __init__(self, ranks: Ranks | None = None) -> None:
        self.ranks = ranks or Ranks()
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

    def facts(self) -> dict[str, Any]:
        """Return what `environment.json` says of the framework: device, GPU, threads."""
        return {"device": "cpu", "gpu": None, "threads": {}}

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

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Let ranks take as long as they need inside, and wait for each other at its end.

        For what one node may be much slower at than another, as copying data to its disk;
        elsewhere a rank that is minutes late counts as lost.
        """
        yield

    def peak_memory(self) -> int:
        """Return the most bytes that this process has had on its device, of a CPU all it had."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""

    def close(self) -> None:
        """Leave the group of ranks."""

    def lost(self, error: Exception) -> bool:
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
        except Exception as error:
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
