"""The strategies of PyTorch trainings without Horovod: one process, or DistributedDataParallel.

The training loop of an app uses only the interface `TorchStrategy`. A strategy averages gradients
over the ranks; everything else in a step is the same on one rank and on many.

Li et al., "PyTorch Distributed", arXiv:2006.15704: gradients are sent in large buckets, because
messages of a few kilobytes are slow.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from trainkit.exits import PeerError, StoppedError
from trainkit.meters import Gpu
from trainkit.ranks import Ranks, rendezvous
from trainkit.strategy import Pending, Strategy

T = TypeVar("T")
BUCKET_BYTES = 25 << 20
"""Bucket size in bytes, the default of DistributedDataParallel: arXiv:2006.15704, section 4."""
TIMEOUT = timedelta(minutes=10)  # largest delay of a rank at a collective operation
PATIENT_TIMEOUT = timedelta(days=2)  # the same in `unhurried`, longer than any job
SETTLE_SECONDS = 0.2


class Sum:
    """The sums over the ranks of a job with a single process, which are the values themselves.

    `result` copies them from the device.
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def result(self) -> list[float]:
        """Return the sums as a list, after the device has computed them."""
        found: list[float] = self.values.tolist()
        return found


class TorchStrategy(Strategy):
    """The strategy of a training with one process, and the interface of all other strategies.

    Attributes:
        device: device of the training; default: the CPU.
    """

    def __init__(
        self, ranks: Ranks | None = None, device: torch.device | None = None,
        compression: str = "none",
    ) -> None:
        super().__init__(ranks)
        self.device = device or torch.device("cpu")
        self._half = compression == "fp16"

    def facts(self) -> dict[str, Any]:
        """Return the facts of PyTorch for `environment.json`: device, GPU, threads."""
        threads = {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()}
        return {"device": str(self.device), "gpu": _gpu(self.device), "threads": threads}

    def gpu(self) -> Gpu | None:
        """Return the GPU of this rank, or None on a CPU; its PCI address needs PyTorch 2.8."""
        if self.device.type != "cuda":
            return None
        facts = torch.cuda.get_device_properties(self.device)
        keys = ("pci_domain_id", "pci_bus_id", "pci_device_id")
        known = all(hasattr(facts, key) for key in keys)
        address = "{:08x}:{:02x}:{:02x}.0".format(*(getattr(facts, key) for key in keys)) \
            if known else None
        return Gpu(self.device.index or 0, address)

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        """Give all ranks the weights of rank 0; return the module to call in the training.

        Args:
            network: the network to train.
            overlap: whether gradients are sent while the backward pass computes other gradients.
                This requires a network of fixed parameters with one forward and backward pass per
                micro-batch. Without overlap, the network itself is returned, and `averaged`
                averages the accumulated gradients. The step may then contain any number of passes
                through several networks, as an adversarial loss or a gradient penalty requires. A
                network that gets new parameters must be distributed again.
        """
        return network

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context for the forward and backward pass of `network` on a micro-batch.

        `last` must be true for the last micro-batch of a step.
        """
        return nullcontext()

    @contextmanager
    def averaged(self, *networks: nn.Module) -> Iterator[None]:
        """Average the gradients over the ranks; the `with` block must then step the optimizers.

        `networks` are the networks that are updated now, and were distributed without overlap. All
        ranks must have gradients of the same parameters.
        """
        if self.size > 1 and networks:
            with self.waiting():
                self._average_gradients(networks)
        yield

    @torch.no_grad()
    def _average_gradients(self, networks: Sequence[nn.Module]) -> None:
        groups = list(buckets(gradients(networks)))
        # In fp16 a sum overflows earlier than a mean.
        share = self.size if self._half else 1
        flat = [flatten(group).div_(share) for group in groups]
        sent = [tensor.half() if self._half else tensor for tensor in flat]
        self.average(sent)
        for group, tensor in zip(groups, sent, strict=True):
            unflatten(tensor.to(group[0].dtype).mul_(share), group)

    def start_sum(self, values: Tensor) -> Pending:
        """Start to sum the elements of `values` (1-d) over the ranks, in the background."""
        return Sum(values)

    def all_sum(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the ranks, without waiting for a GPU."""
        return value

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks, in double precision."""
        return self.start_sum(torch.tensor(list(values), dtype=torch.float64)).result()

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""

    def peak_memory(self) -> int:
        """Return the peak memory in bytes, of all tensors on a GPU or of the process on a CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return super().peak_memory()

    def synchronize(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _gpu(device: torch.device) -> dict[str, Any] | None:
    """Return the facts of a GPU that affect results and speed, or None for a CPU."""
    if device.type != "cuda":
        return None
    facts, version = torch.cuda.get_device_properties(device), torch.version
    return {
        "name": facts.name,
        "memory_bytes": facts.total_memory,
        "runtime": f"ROCm {version.hip}" if version.hip else f"CUDA {version.cuda}",
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
    }


class Ddp(TorchStrategy):
    """The strategy of ranks with DistributedDataParallel; for its methods, see `TorchStrategy`."""

    name = "ddp"

    def __init__(
        self, ranks: Ranks, device: torch.device, backend: str | None, compression: str
    ) -> None:
        super().__init__(ranks, device, compression)
        self._last_bucket = 0.0
        self._backend = chosen = backend or ("nccl" if device.type == "cuda" else "gloo")
        # The ranks connect at a store, which torchrun's agent hosts, or rank 0 without torchrun.
        if ranks.launcher == "torchrun":
            place = "env://"
        else:
            place = "tcp://{}:{}".format(*rendezvous(ranks))
        # Sums of counts and flags run on the CPU, and need not wait for the GPU.
        both = f"cpu:gloo,cuda:{chosen}" if device.type == "cuda" and chosen == "nccl" else chosen
        try:
            dist.init_process_group(
                both, init_method=place, rank=ranks.rank, world_size=ranks.size, timeout=TIMEOUT
            )
        except (RuntimeError, ValueError) as error:
            raise PeerError(
                f"rank {ranks.rank} cannot meet the others at {place}: {error}"
            ) from error

    @property
    def backend(self) -> str:
        """The library that averages tensors over the ranks: gloo or nccl."""
        return self._backend

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        """Give all ranks the weights of rank 0; with `overlap`, return a DistributedDataParallel.

        DistributedDataParallel expects exactly one gradient of each parameter after each forward
        pass. Without `overlap`, a step may contain any number of passes (see
        `TorchStrategy.distribute`). Therefore `network` itself is then returned.
        """
        if not overlap:
            for tensor in network.state_dict().values():
                dist.broadcast(dense(tensor), src=0)
            return network
        devices = [self.device.index] if self.device.type == "cuda" else None
        # Each rank has its own batch statistics; `average` averages moving statistics if needed.
        # PyTorch 2.13 renamed the option.
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
        """Return a context for a backward pass; gradients are averaged only if `last` is true."""
        if last:
            return _AfterLastBucket(self)
        return cast("DistributedDataParallel", network).no_sync()

    def start_sum(self, values: Tensor) -> Pending:
        """Start to sum the elements of `values` over the ranks."""
        return _Work(values, dist.all_reduce(values, async_op=True))

    def all_sum(self, value: Tensor) -> Tensor:
        """Replace `value` by its sum over the ranks, and return this tensor."""
        dist.all_reduce(value)
        return value

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

    def side_channel(self) -> Callable[[Any], list[Any]]:
        """Return a function like `gather` that a second thread may call during the training.

        It uses a process group of its own. All ranks must call this method at the same moment.
        """
        group = dist.new_group(backend="gloo", timeout=PATIENT_TIMEOUT)

        def gather(value: Any) -> list[Any]:
            box: list[Any] = [None] * self.size
            dist.all_gather_object(box, value, group)
            return box

        return gather

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor /= self.size

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Wait at the end of the `with` block until all ranks arrive, for two days at most."""
        patient = dist.new_group(backend="gloo", timeout=PATIENT_TIMEOUT)
        yield
        dist.barrier(patient)
        dist.destroy_process_group(patient)

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        text = str(error)
        named = isinstance(error, RuntimeError) and ("gloo" in text or "NCCL" in text)
        return named or isinstance(error, dist.DistError)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert errors in the `with` block as `Strategy.explained` does.

        After a StoppedError (all ranks stopped at the same step), leave the process group.
        """
        with super().explained():
            try:
                yield
            except StoppedError:
                self.close()  # all ranks stopped at the same step, so that none waits for another
                raise

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()
        # gloo's threads outlive DistributedDataParallel (PyTorch 2.13). A thread that releases its
        # last work while Python exits aborts the process (pytorch/pytorch pull request 179291),
        # so that they get time to finish.
        time.sleep(SETTLE_SECONDS)


class _Work(Sum):
    def __init__(self, values: Tensor, work: Any) -> None:
        super().__init__(values)
        self._work = work

    def result(self) -> list[float]:
        self._work.wait()
        return super().result()


class _AfterLastBucket(nullcontext[None]):
    """A context for a backward pass; at its end, it measures the wait for other ranks.

    It adds the seconds since the last gradient bucket was sent to `communicating`.
    """

    def __init__(self, strategy: Ddp) -> None:
        super().__init__()
        self._strategy = strategy

    def __exit__(self, *error: object) -> None:
        if self._strategy._last_bucket:
            self._strategy.communicating += time.perf_counter() - self._strategy._last_bucket


def dense(tensor: Tensor) -> Tensor:
    """Return a contiguous view of `tensor`, with the dimensions in the order of their storage.

    Horovod and MPI accept only contiguous tensors. The view is suitable for a sum over the ranks,
    which does not depend on the order of the dimensions.
    """
    return tensor.permute(sorted(range(tensor.ndim), key=tensor.stride, reverse=True))


def gradients(networks: Sequence[nn.Module]) -> list[Tensor]:
    """Return contiguous views of the gradients of all parameters that have one, in order."""
    parameters = [parameter for network in networks for parameter in network.parameters()]
    return [dense(parameter.grad) for parameter in parameters if parameter.grad is not None]


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of tensors of one type and device.

    A group has at most `BUCKET_BYTES` bytes, or a single tensor that is larger.
    """
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bytes_ = tensor.numel() * tensor.element_size()
        other = bucket and (tensor.dtype, tensor.device) != (bucket[0].dtype, bucket[0].device)
        if bucket and (other or size + bytes_ > BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += bytes_
    if bucket:
        yield bucket


def flatten(bucket: Sequence[Tensor]) -> Tensor:
    """Return the elements of all tensors of a bucket in one new tensor."""
    return torch.cat([tensor.flatten() for tensor in bucket])


def unflatten(flat: Tensor, bucket: Sequence[Tensor]) -> None:
    """Copy the elements of `flat` back to the tensors of a bucket."""
    parts = torch.split(flat, [tensor.numel() for tensor in bucket])
    for tensor, part in zip(bucket, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
