"""What a training in PyTorch asks of its ranks; here of one process that is alone.

The loop of an app asks only this interface. A strategy averages gradients over the ranks;
everything else about a step is the same on one rank or on many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from trainkit.ranks import Ranks
from trainkit.strategy import Pending, Strategy


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

    def __init__(self, ranks: Ranks | None = None, device: torch.device | None = None) -> None:
        super().__init__(ranks)
        self.device = device or torch.device("cpu")

    def facts(self) -> dict[str, Any]:
        """Return what `environment.json` says of PyTorch: device, GPU, threads."""
        threads = {"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()}
        return {"device": str(self.device), "gpu": _gpu(self.device), "threads": threads}

    def distribute(self, network: nn.Module) -> nn.Module:
        """Return the module to call in training, after all ranks have rank 0's weights."""
        return network

    def backward(self, network: nn.Module, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of forward and backward of a micro-batch; `last` of its step."""
        return nullcontext()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Yield when the gradients are averages over the ranks; step inside."""
        yield

    def start_sum(self, values: Tensor) -> Pending:
        """Begin to sum the elements of `values` (1-d) over the ranks, in the background."""
        return Sum(values)

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks, in double precision."""
        return self.start_sum(torch.tensor(list(values), dtype=torch.float64)).result()

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each of `tensors` by its mean over the ranks."""

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
