"""Makes batches in the background, in lanes that take turns, some of them ahead."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

AHEAD = 2  # finished batches that wait for the network

B = TypeVar("B")


class Lane(Protocol[B]):
    """What makes one batch after the other."""

    def start(self) -> Future[B]:
        """Begin to make the next batch."""
        ...

    def close(self) -> None:
        """End the threads, without waiting."""
        ...


class Producer(Generic[B]):
    """Batches of lanes, in turns: `trainkit.data.loader.Source`.

    Args:
        lanes: the first has the batches 0, L, 2 L, … of L lanes.
        ahead: how many batches to finish ahead.
    """

    def __init__(self, lanes: Sequence[Lane[B]], *, ahead: int = AHEAD) -> None:
        self._lanes = lanes
        self._turns = itertools.cycle(lanes)
        self._limit = ahead
        self._ahead: deque[Future[B]] = deque()

    def next(self) -> B:
        """Return the next batch; an error of making it, or one of the next, is raised here."""
        while len(self._ahead) <= self._limit:
            self._ahead.append(next(self._turns).start())
        return self._ahead.popleft().result()

    def close(self) -> None:
        """End the threads, without waiting."""
        for lane in self._lanes:
            lane.close()
