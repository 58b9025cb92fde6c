"""Horovod: gradients are averaged as they become ready, by MPI, Gloo or NCCL.

Sergeev and Del Balso, arXiv:1802.05799. Fusion and cycle time are Horovod's own
variables: HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CYCLE_TIME (ms).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainkit.engine import Engine, Pending
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks

T = TypeVar("T")


class Horovod(Engine):
    """Ranks of Horovod's world; see `Engine`."""

    name = "horovod"

    def __init__(self, ranks: Ranks, device: torch.device, compression: str) -> None:
        try:
            import horovod.torch as hvd
        except ImportError as error:
            raise ArgumentError(
                f"--engine horovod: Horovod is not installed ({error}); the images have it"
            ) from error
        self._hvd: Any = hvd
        self._compression = getattr(hvd.Compression, compression)
        hvd.init()
        found = Ranks(ranks.launcher, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
        super().__init__(found, device)

    def distribute(self, network: nn.Module) -> nn.Module:
        """Return `network` with rank 0's weights."""
        self._hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        return network

    def wrap(self, optimizer: Optimizer, network: nn.Module, accumulation: int) -> Optimizer:
        """Return Horovod's optimizer around `optimizer`."""
        wrapped: Optimizer = self._hvd.DistributedOptimizer(
            optimizer, named_parameters=network.named_parameters(),
            compression=self._compression, backward_passes_per_step=accumulation,
        )
        return wrapped

    @contextmanager
    def averaged(self, optimizer: Optimizer) -> Iterator[None]:
        """Wait for the averages, and step inside without waiting again."""
        wrapped: Any = optimizer
        with self.waiting():
            wrapped.synchronize()
        with wrapped.skip_synchronize():
            yield

    def start_sum(self, values: Tensor) -> Pending:
        """Begin to sum the elements of `values` over the ranks."""
        return _Handle(self._hvd, self._hvd.allreduce_async(values, op=self._hvd.Sum))

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        shared: T = self._hvd.broadcast_object(value, root_rank=0)
        return shared

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""
        handles = [self._hvd.allreduce_async_(tensor, op=self._hvd.Average) for tensor in tensors]
        for handle in handles:
            self._hvd.synchronize(handle)

    def lost(self, error: RuntimeError) -> bool:
        """Whether `error` says that another rank is gone."""
        from horovod.common.exceptions import HorovodInternalError

        return isinstance(error, HorovodInternalError)

    def close(self) -> None:
        """Leave Horovod's world."""
        self._hvd.shutdown()


class _Handle(Pending):
    def __init__(self, hvd: Any, handle: Any) -> None:
        super().__init__(torch.empty(0))
        self._hvd, self._handle = hvd, handle

    def result(self) -> list[float]:
        found: list[float] = self._hvd.synchronize(self._handle).tolist()
        return found
