"""What a training in PyTorch asks of its ranks; here of one process that is alone.

The loop of an app asks only this interface. A strategy averages gradients over the ranks;
everything else about a step is the same on one rank or on many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainkit.ranks import Ranks
from trainkit.strategy import Pending, Strategy
from trainkit.torch import buckets


class Sum:
    """A sum over the ranks that is there: `Pending`."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def result(self) -> list[float]:
        """Return the sum; waits for a GPU."""
        found: list[float] = self.values.tolist()
        return found


class TorchStrategy(Strategy):
    """One process of a training: here the only one.

    Attributes:
        device: where it computes; by default on the CPU.
    """

    def __init__(
        self, ranks: Ranks | None = None, device: torch.device | None = None,
        compression: str = "none",
    ) -> None:
        super().__init__(ranks)
        self.device = device or torch.device("cpu")
        self._half = compression == "fp16"

    def facts(self) -> dict[str, Any]:
        """Return what `environment.json` says of PyTorch: device, GPU, threads."""
        threads = {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()}
        return {"device": str(self.device), "gpu": _gpu(self.device), "threads": threads}

    def distribute(self, network: nn.Module, *, overlap: bool = True) -> nn.Module:
        """Return the module to call in training, after all ranks have rank 0's weights.

        Args:
            network: what is trained.
            overlap: send gradients while the backward pass still computes others. It takes a
                network of fixed parameters, that one forward and backward pass of a micro-batch
                uses. Without, the network itself is returned, and `averaged` averages what lies
                in its gradients: after any passes of any networks (an adversary's loss, a
                penalty on gradients). One that has grown is distributed again.
        """
        return network

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of forward and backward of a micro-batch; `last` of its step."""
        return nullcontext()

    @contextmanager
    def averaged(self, *networks: nn.Module) -> Iterator[None]:
        """Yield when the gradients are averages over the ranks; step inside.

        `networks` are those to be stepped that were distributed without overlap. All ranks have
        gradients of the same parameters.
        """
        if self.size > 1 and networks:
            with self.waiting():
                self._average_gradients(networks)
        yield

    @torch.no_grad()
    def _average_gradients(self, networks: Sequence[nn.Module]) -> None:
        groups = list(buckets.buckets(buckets.gradients(networks)))
        # A sum in fp16 overflows before a mean does.
        share = self.size if self._half else 1
        flat = [buckets.flatten(group).div_(share) for group in groups]
        sent = [tensor.half() if self._half else tensor for tensor in flat]
        self.average(sent)
        for group, tensor in zip(groups, sent, strict=True):
            buckets.unflatten(tensor.to(group[0].dtype).mul_(share), group)

    def start_sum(self, values: Tensor) -> Pending:
        """Begin to sum the elements of `values` (1-d) over the ranks, in the background."""
        return Sum(values)

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks, in double precision."""
        return self.start_sum(torch.tensor(list(values), dtype=torch.float64)).result()

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""

    def peak_memory(self) -> int:
        """Return the most bytes that tensors had on a GPU; of a CPU all that the process had."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return super().peak_memory()

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _gpu(device: torch.device) -> dict[str, Any] | None:
    """Return what a GPU's figures depend on, None for a CPU."""
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
