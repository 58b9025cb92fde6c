"""The memory of a process's tensors, and the bytes that it sends, counted in PyTorch's dispatcher.

Every operation passes the dispatcher, also in the backward pass, in FSDP, in
DistributedDataParallel and in a pipeline, so the counts do not depend on an allocator or a network.
Buffers inside of an operation or of a library are not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import distributed_c10d as c10d
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WRAPPED = (DTensor, AsyncCollectiveTensor)
RING: dict[str, Callable[[int], float]] = {
    "allreduce_": lambda n: 2 * (n - 1) / n,
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "_allgather_base_": lambda n: (n - 1) / n,
    "all_gather_into_tensor": lambda n: n - 1,
    "_reduce_scatter_base_": lambda n: n - 1,
    "reduce_scatter_tensor": lambda n: (n - 1) / n,
    "broadcast_": lambda n: (n - 1) / n,
    "send": lambda _: 1,
}
"""Operation of `torch.distributed` -> function from the number of ranks to a factor.

A rank sends this factor times the bytes of the operation's first argument, which is one or
several tensors. This argument contains the whole data, with two exceptions: in
`all_gather_into_tensor`, it is only the part that the rank contributes; in
`_reduce_scatter_base_`, it is only the part that the rank receives. The formulas hold for
collectives in a ring of the ranks: Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005; for a broadcast, the formula is the mean over the
ranks. A library may send more.
"""


class Footprint(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context manager that counts the memory of tensors and the bytes sent inside its block.

    Attributes:
        peak: largest number of bytes of all tensors in memory at the end of an operation.
        sent: bytes that this rank sent to others; see `RING`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak, self.sent = 0, 0.0
        self._storages: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, operation: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and count its tensors and the bytes that it sends."""
        if any(issubclass(kind, WRAPPED) for kind in types):
            return NotImplemented  # their operations on the pieces come here, too
        result = operation(*args, **(kwargs or {}))
        if operation.namespace in ("c10d", "_c10d_functional"):
            self.sent += sent(operation, args)
        for value in tree_leaves((args, result)):
            if isinstance(value, Tensor) and not isinstance(value, (*WRAPPED, FakeTensor)) \
                    and value.device.type != "meta":
                storage = value.untyped_storage()
                self._storages[storage._cdata] = weakref.ref(storage)
        self.peak = max(self.peak, self.live)
        return result

    @property
    def live(self) -> int:
        """The bytes of all tensors in memory.

        Each call reads the sizes of all storages again, because FSDP changes them.
        """
        found = {key: ref() for key, ref in self._storages.items()}
        self._storages = {
            key: self._storages[key] for key, storage in found.items() if storage is not None
        }
        return sum(storage.nbytes() for storage in found.values() if storage is not None)


def sent(operation: Any, args: Sequence[Any]) -> float:
    """Return the bytes that this rank sends in an operation of `torch.distributed`."""
    name = operation.name().partition("::")[2].partition(".")[0]
    if name not in RING:
        return 0.0
    tensors = [value for value in tree_leaves(args[0]) if isinstance(value, Tensor)]
    bytes_ = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return float(RING[name](_group_size(operation, args)) * bytes_)


def _group_size(operation: Any, args: Sequence[Any]) -> int:
    """Return the number of ranks that take part in a collective operation.

    An operation of `c10d` has the group of the ranks among its arguments; any other operation has
    the name of the group as its last argument.
    """
    if operation.namespace == "c10d":
        groups = [value for value in args if type(value).__name__ == "ScriptObject"]
        return int(dist.ProcessGroup.unbox(groups[0]).size())
    group = c10d._resolve_process_group(args[-1])  # type: ignore[attr-defined]
    return int(group.size())
