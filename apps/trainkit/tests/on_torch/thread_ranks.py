"""Ranks that are threads of this process: Horovod's interface without MPI, Gloo and processes.

Trainkit's strategy for Horovod and the training loop of an app run with this substitute without
changes; several ranks start in a fraction of a second. A collective operation stores the tensor of
each rank until all ranks have called it.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from trainkit.ranks import Ranks
from trainkit.torch.horovod import Horovod

PATIENCE = 20.0  # seconds until a rank that waits for a failed one gives up


class World:
    """The ranks of a job, and the values that they have passed to each collective operation."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._given: dict[Any, dict[int, Any]] = {}
        self._changed = threading.Condition()

    def give(self, key: Any, rank: int, value: Any) -> None:
        with self._changed:
            self._given.setdefault(key, {})[rank] = value
            self._changed.notify_all()

    def take(self, key: Any) -> list[Any]:
        """Wait until each rank has called `give`; return the values in the order of the ranks."""
        with self._changed:
            all_there = self._changed.wait_for(
                lambda: len(self._given.get(key, {})) == self.size, PATIENCE
            )
            assert all_there, f"{key}: only some ranks take part"
            return [self._given[key][rank] for rank in range(self.size)]


class Handle:
    """A collective in progress: its key, its operation, and the tensor for its result."""

    def __init__(self, key: Any, op: str, into: Tensor | None) -> None:
        self.key, self.op, self.into, self.done = key, op, into, False


class Half:
    """A stand-in for Horovod's compression to fp16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor.half(), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, kind: Any) -> Tensor:
        return tensor.to(kind)


class Full:
    """Horovod's compression `none`, which leaves the values unchanged."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, _: Any) -> Tensor:
        return tensor


class ThreadHorovod(ModuleType):
    """A substitute for `horovod.torch`, for the ranks of one `World`."""

    Average, Sum = "average", "sum"

    class Compression:
        none, fp16 = Full, Half

    def __init__(self, world: World) -> None:
        super().__init__("horovod.torch")
        self._world, self._here = world, threading.local()

    def enter(self, rank: int) -> None:
        """Make the current thread the rank `rank`."""
        self._here.rank, self._here.calls, self._here.under_way = rank, Counter(), set()

    def init(self) -> None: ...

    def shutdown(self) -> None: ...

    def mpi_enabled(self) -> bool:
        return False

    def rank(self) -> int:
        return self._here.rank

    def size(self) -> int:
        return self._world.size

    local_rank, local_size = rank, size

    def _begin(self, name: str, value: Any) -> Any:
        """Pass `value` of this rank to a collective operation; return the key of the operation.

        The n-th operation with a name is combined with the n-th one of each other rank.
        """
        self._here.calls[name] += 1
        key = (name, self._here.calls[name])
        self._world.give(key, self._here.rank, value)
        return key

    def _exchange(self, name: str, value: Any) -> list[Any]:
        return self._world.take(self._begin(name, value))

    def allreduce_async(self, tensor: Tensor, *, op: str, name: str = "sum") -> Handle:
        assert tensor.is_contiguous()  # as Horovod demands
        return Handle(self._begin(name, tensor.detach().clone()), op, None)

    def allreduce_async_(self, tensor: Tensor, *, op: str, name: str = "in place") -> Handle:
        # Horovod refuses a second gradient of a name while the first is under way.
        assert name == "in place" or name not in self._here.under_way, name
        self._here.under_way.add(name)
        handle = self.allreduce_async(tensor, op=op, name=name)
        handle.into = tensor
        return handle

    def synchronize(self, handle: Handle) -> Tensor:
        assert not handle.done, handle.key  # Horovod knows it no more
        handle.done, given = True, self._world.take(handle.key)
        self._here.under_way.discard(handle.key[0])
        total = torch.stack(given).sum(0)
        if handle.op == self.Average:
            total = total / self._world.size
        if handle.into is None:
            return total
        with torch.no_grad():
            handle.into.copy_(total)
        return handle.into

    def broadcast_parameters(self, named: list[tuple[str, Tensor]], root_rank: int) -> None:
        for name, tensor in named:
            first = self._exchange(f"parameter {name}", tensor.detach().clone())[root_rank]
            with torch.no_grad():
                tensor.copy_(first)

    def broadcast_object(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        known = f"broadcast.{name or type(value).__name__}"  # as Horovod has it
        return copy.deepcopy(self._exchange(known, value)[root_rank])

    def allgather_object(self, value: Any, name: str | None = None) -> list[Any]:
        return copy.deepcopy(self._exchange(f"gather.{name or type(value).__name__}", value))


def on_ranks(
    size: int, work: Callable[[Horovod], Any], monkeypatch: pytest.MonkeyPatch,
    compression: str = "none",
) -> list[Any]:
    """Return the result of `work` on each of `size` ranks; raise the first error of a rank."""
    hvd = ThreadHorovod(World(size))
    package = ModuleType("horovod")
    package.torch = hvd  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "horovod", package)
    monkeypatch.setitem(sys.modules, "horovod.torch", hvd)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def begin(rank: int) -> None:
        hvd.enter(rank)
        try:
            strategy = Horovod(
                Ranks(None, rank, size, rank, size), torch.device("cpu"), compression
            )
            results[rank] = work(strategy)
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
