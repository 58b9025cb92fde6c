"""Ranks that are threads of this process: Horovod's interface for TensorFlow, without MPI."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainkit.ranks import Ranks
from trainkit.tensorflow.horovod import Horovod

PATIENCE = 30.0  # seconds until a rank that waits for a failed one gives up


class ThreadHorovod:
    """A substitute for `horovod.tensorflow` whose ranks are threads.

    The n-th call with a name is combined with the n-th call of each other rank with this name.
    """

    Average, Sum = "average", "sum"

    def __init__(self, size: int) -> None:
        self._size, self._here = size, threading.local()
        self._given: dict[Any, dict[int, Any]] = {}
        self._calls: Counter[tuple[str, int]] = Counter()
        self._changed = threading.Condition()

    def enter(self, rank: int) -> None:
        """Make the current thread the rank `rank`."""
        self._here.rank = rank

    def shutdown(self) -> None: ...

    def rank(self) -> int:
        return self._here.rank

    def size(self) -> int:
        return self._size

    local_rank, local_size = rank, size

    def _exchange(self, name: str, rank: int, value: Any) -> list[Any]:
        with self._changed:
            self._calls[name, rank] += 1
            given = self._given.setdefault((name, self._calls[name, rank]), {})
            given[rank] = value
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: len(given) == self._size, PATIENCE), name
            return [given[n] for n in range(self._size)]

    def allreduce(self, tensor: tf.Tensor, *, op: str, name: str = "unnamed") -> tf.Tensor:
        assert tensor.dtype != tf.bfloat16, "refused by Horovod on CPUs"
        rank = self.rank()  # a graph runs in other threads than the one that made it

        def together(own: np.ndarray) -> np.ndarray:
            total = np.sum(self._exchange(name, rank, own), axis=0, dtype=own.dtype)
            return (total / self._size if op == self.Average else total).astype(own.dtype)

        found = tf.numpy_function(together, [tensor], tensor.dtype)
        found.set_shape(tensor.shape)
        return found

    def broadcast_object(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        known = f"broadcast.{name or type(value).__name__}"  # as Horovod has it
        return copy.deepcopy(self._exchange(known, self.rank(), value)[root_rank])

    def allgather_object(self, value: Any, name: str | None = None) -> list[Any]:
        known = f"gather.{name or type(value).__name__}"
        return copy.deepcopy(self._exchange(known, self.rank(), value))


def on_ranks(size: int, work: Callable[[Horovod], Any], hvd: ThreadHorovod | None = None) -> list:
    """Return the result of `work` on each of `size` ranks; raise the first error of a rank."""
    hvd = hvd or ThreadHorovod(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def begin(rank: int) -> None:
        hvd.enter(rank)
        try:
            results[rank] = work(Horovod(Ranks(None, rank, size, rank, size), "CPU:0", hvd))
        except BaseException as error:  # to be raised where the test is
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
