"""Make several batches ahead in background workers, called lanes, that take turns."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

AHEAD = 2  # finished batches that are kept ready

B = TypeVar("B")


class Lane(Protocol[B]):
    """A worker that makes one batch after another."""

    def start(self) -> Future[B]:
        """Start to make the next batch."""
        ...

    def close(self) -> None:
        """Stop the threads, without waiting for their end."""
        ...


class Producer(Generic[B]):
    """A `trainkit.data.loader.Source` that takes batches from lanes in turn.

    Args:
        lanes: the workers, which take turns: with L lanes, lane n makes the batches n, n + L,
            n + 2 L, …
        ahead: number of batches to prepare ahead.
    """

    def __init__(self, lanes: Sequence[Lane[B]], *, ahead: int = AHEAD) -> None:
        self._lanes = lanes
        self._turns = itertools.cycle(lanes)
        self._limit = ahead
        self._ahead: deque[Future[B]] = deque()

    def next(self) -> B:
        """Return the next batch; raise an error that occurred while a batch was made."""
        while len(self._ahead) <= self._limit:
            self._ahead.append(next(self._turns).start())
        return self._ahead.popleft().result()

    def close(self) -> None:
        """Stop the threads, without waiting for their end."""
        for lane in self._lanes:
            lane.close()
