"""Horovod: average gradients by MPI, Gloo or NCCL as soon as they are ready.

Sergeev and Del Balso, arXiv:1802.05799. Environment variables set Horovod's fusion threshold and
cycle time: HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CYCLE_TIME (ms).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, check_size, horovod_backend, yield_when_idle
from trainkit.strategy import Pending
from trainkit.torch.strategy import TorchStrategy, dense

T = TypeVar("T")


class Horovod(TorchStrategy):
    """The strategy of a Horovod job; for its methods, see the interface `TorchStrategy`."""

    name = "horovod"

    def __init__(self, ranks: Ranks, device: torch.device, compression: str) -> None:
        try:
            import horovod.torch as hvd
        except ImportError as error:
            raise ArgumentError(
                f"--strategy horovod: Horovod is not installed ({error}); the images have it",
                code="library-missing",
            ) from error
        self._hvd: Any = hvd
        self._compression = getattr(hvd.Compression, compression)
        yield_when_idle()
        hvd.init()
        check_size(ranks, hvd.size(), "Horovod")
        found = Ranks(ranks.launcher, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
        super().__init__(found, device, compression)
        self._last = True
        self._networks = 0
        self._under_way: list[tuple[Tensor, Any, Any]] = []

    @property
    def backend(self) -> str:
        """The library that averages tensors over the ranks: gloo, mpi or nccl."""
        return horovod_backend(self._hvd, gpu=self.device.type == "cuda")

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        """Return `network` with rank 0's weights; if `overlap` is true, hooks average gradients."""
        weights = [(name, dense(tensor)) for name, tensor in network.state_dict().items()]
        self._hvd.broadcast_parameters(weights, root_rank=0)
        if overlap:
            self._networks += 1  # two networks may have parameters of the same name
            for name, parameter in network.named_parameters():
                hook = functools.partial(self._reduce, f"{self._networks}.{name}")
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        return network

    def _reduce(self, name: str, parameter: nn.Parameter) -> None:
        """Start to average a gradient over the ranks, unless another micro-batch will add to it.

        Horovod's own optimizer does the same, but refuses gradients in the memory format
        channels_last.
        """
        if not self._last or parameter.grad is None:
            return
        gradient = dense(parameter.grad)
        sent, kind = self._compression.compress(gradient)
        handle = self._hvd.allreduce_async_(sent, name=name, op=self._hvd.Average)
        self._under_way.append((gradient, kind, handle))

    @contextmanager
    def backward(self, network: nn.Module, *, last: bool) -> Iterator[None]:
        """Average the gradients of the backward pass in the `with` block only if `last` is true."""
        self._last = last
        yield

    @contextmanager
    def averaged(self, *networks: nn.Module) -> Iterator[None]:
        """Wait for the averaged gradients; the `with` block must then step the optimizers."""
        with self.waiting():
            for gradient, kind, handle in self._under_way:
                found = self._compression.decompress(self._hvd.synchronize(handle), kind)
                if found is not gradient:
                    gradient.copy_(found)
        self._under_way.clear()
        with super().averaged(*networks):
            yield

    def start_sum(self, values: Tensor) -> Pending:
        """Start to sum the elements of `values` over the ranks."""
        return _Handle(self._hvd, self._hvd.allreduce_async(values, op=self._hvd.Sum))

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        # Without a name, ranks whose values differ in type would wait for each other forever.
        shared: T = self._hvd.broadcast_object(value, root_rank=0, name="share")
        return shared

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of the ranks."""
        found: list[T] = self._hvd.allgather_object(value, name="gather")
        return found

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""
        handles = [self._hvd.allreduce_async_(tensor, op=self._hvd.Average) for tensor in tensors]
        for handle in handles:
            self._hvd.synchronize(handle)

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        from horovod.common.exceptions import HorovodInternalError

        return isinstance(error, HorovodInternalError)

    def close(self) -> None:
        """Shut Horovod down."""
        self._hvd.shutdown()


class _Handle:
    def __init__(self, hvd: Any, handle: Any) -> None:
        self._hvd, self._handle = hvd, handle

    def result(self) -> list[float]:
        found: list[float] = self._hvd.synchronize(self._handle).tolist()
        return found
