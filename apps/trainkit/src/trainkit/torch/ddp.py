"""PyTorch's DistributedDataParallel: gradients are averaged in buckets, during the backward pass.

Li et al., "PyTorch Distributed", arXiv:2006.15704.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from trainkit.exits import PeerError
from trainkit.ranks import Ranks, rendezvous
from trainkit.strategy import Pending
from trainkit.torch.buckets import dense
from trainkit.torch.strategy import Sum, TorchStrategy

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # a rank may be this much later than another, in its data or disk
PATIENCE = timedelta(days=2)  # and this much inside of `unhurried`: a job's time is shorter
SETTLE = 0.2  # seconds


class Ddp(TorchStrategy):
    """Ranks of one process group; see `TorchStrategy`."""

    name = "ddp"

    def __init__(
        self, ranks: Ranks, device: torch.device, backend: str | None, compression: str
    ) -> None:
        super().__init__(ranks, device, compression)
        self._last_bucket = 0.0
        chosen = backend or ("nccl" if device.type == "cuda" else "gloo")
        # torchrun's agent keeps the store where its ranks meet; else rank 0 opens one.
        if ranks.launcher == "torchrun":
            place = "env://"
        else:
            place = "tcp://{}:{}".format(*rendezvous(ranks))
        # Sums of counts and flags can go over the CPU, and need not wait for the GPU.
        both = f"cpu:gloo,cuda:{chosen}" if device.type == "cuda" and chosen == "nccl" else chosen
        try:
            dist.init_process_group(
                both, init_method=place, rank=ranks.rank, world_size=ranks.size, timeout=TIMEOUT
            )
        except (RuntimeError, ValueError) as error:
            raise PeerError(
                f"rank {ranks.rank} cannot meet the others at {place}: {error}"
            ) from error

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        """Return `network` in a DistributedDataParallel, which starts from rank 0's weights.

        It waits for one gradient of each parameter after a forward pass, so that without
        `overlap` there is none; see `TorchStrategy`.
        """
        if not overlap:
            for tensor in network.state_dict().values():
                dist.broadcast(dense(tensor), src=0)
            return network
        devices = [self.device.index] if self.device.type == "cuda" else None
        # Batch statistics are each rank's own; `average` joins the moving ones when needed.
        # PyTorch 2.13 has renamed the option.
        known = inspect.signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        own_statistics: dict[str, Any] = {name: False}
        wrapped = DistributedDataParallel(
            network, device_ids=devices, gradient_as_bucket_view=True, **own_statistics
        )
        wrapped.register_comm_hook(None, lambda _, bucket: self._reduce(bucket))
        return wrapped

    def _reduce(self, bucket: Any) -> torch.futures.Future[Tensor]:
        self._last_bucket = time.perf_counter()
        hook = default_hooks.fp16_compress_hook if self._half else default_hooks.allreduce_hook
        group = cast("dist.ProcessGroup", dist.group.WORLD)
        return hook(group, bucket)

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Return a context in which only the last micro-batch of a step communicates."""
        if last:
            return _AfterLastBucket(self)
        return cast("DistributedDataParallel", network).no_sync()

    def start_sum(self, values: Tensor) -> Pending:
        """Begin to sum the elements of `values` over the ranks."""
        return _Work(values, dist.all_reduce(values, async_op=True))

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of the ranks."""
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value)
        return box

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor /= self.size

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Let ranks take as long as they need inside; see `Strategy`."""
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield
        dist.barrier(patient)
        dist.destroy_process_group(patient)

    def lost(self, error: Exception) -> bool:
        """Whether `error` says that another rank is gone."""
        text = str(error)
        named = isinstance(error, RuntimeError) and ("gloo" in text or "NCCL" in text)
        return named or isinstance(error, dist.DistError)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
        # Once DistributedDataParallel was used, gloo's threads live on (PyTorch 2.13). One that
        # lets go of its last work only when Python ends would abort the process
        # (pytorch/pytorch pull request 179291): asleep, Python lets it.
        time.sleep(SETTLE)


class _Work(Sum):
    def __init__(self, values: Tensor, work: Any) -> None:
        super().__init__(values)
        self._work = work

    def result(self) -> list[float]:
        self._work.wait()
        return super().result()


class _AfterLastBucket(nullcontext[None]):
    """Counts what the backward pass waits after its last bucket of gradients was complete."""

    def __init__(self, strategy: Ddp) -> None:
        super().__init__()
        self._strategy = strategy

    def __exit__(self, *error: object) -> None:
        if self._strategy._last_bucket:
            self._strategy.communicating += time.perf_counter() - self._strategy._last_bucket
