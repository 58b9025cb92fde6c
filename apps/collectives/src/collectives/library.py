"""The interface of the libraries that move data between ranks.

A library makes a `Case`: buffers, and a function that performs the operation once. The timed loop
calls only this function, which calls the library directly, with fixed arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collectives.operations import Operation
from trainkit.strategy import Strategy

Call = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One operation with buffers of one size.

    Attributes:
        call: function that performs the operation once.
        send: buffer that the rank sends, or None if the rank sends nothing.
        receive: buffer of the result, in some operations the same as `send`. It is None if `call`
            returns the result in a new buffer, or if the rank receives nothing.
    """

    call: Call
    send: Tensor | None = None
    receive: Tensor | None = None


class Library(ABC):
    """A library and the ranks that it connects; the base class of all libraries.

    Attributes:
        name: name of the library, as in `--library`.
        backend: name and version of the communication software, as the library reports it.
        strategy: the strategy that connects the ranks for the exchange of decisions and times.
        device: device of the buffers.
        dtype: number format of the buffers.
        in_place: operations whose result replaces the data that were sent.
        returned: operations whose call returns the result in a new buffer.
    """

    name = ""
    in_place: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()

    def __init__(
        self, strategy: Strategy, device: torch.device, dtype: torch.dtype, backend: str
    ) -> None:
        self.strategy, self.device, self.dtype, self.backend = strategy, device, dtype, backend

    @abstractmethod
    def lacks(self, operation: Operation) -> str | None:
        """Return the reason if the library lacks `operation` for `dtype`, otherwise None."""

    @property
    def most_elements(self) -> int | None:
        """The largest number of elements that one rank can send to another one in a call.

        None: the library has no limit.
        """
        return None

    @abstractmethod
    def call(self, operation: Operation, send: Tensor | None, receive: Tensor | None) -> Call:
        """Return the function that performs `operation` once on the given buffers."""

    def prepare(self, operation: Operation, elements: int) -> Case:
        """Return the operation with its new buffers, whose blocks have `elements` elements each.

        Some operations divide a buffer into one block for each rank; others have a single block.
        """
        if not operation.is_sized:
            return Case(self.call(operation, None, None))
        sent, received = self.block_counts(operation)
        send = self._buffer(elements * sent) if sent else None
        receive = self._buffer(elements * received) if received else None
        if operation.name in self.in_place:
            receive = send
        return Case(self.call(operation, send, receive), send, receive)

    def block_counts(self, operation: Operation) -> tuple[int, int]:
        """Return the number of blocks in the send buffer and in the receive buffer of this rank.

        Some operations divide a buffer into one block for each rank; others have a single block.

        No receive buffer is allocated if the result replaces the sent data, or if the library
        itself allocates the buffer of the result.
        """
        ranks = self.strategy.size
        if not operation.is_sized or not operation.takes_part(self.strategy.rank, ranks):
            return 0, 0
        blocks = operation.blocks(ranks)
        sent = 1 if operation.gathers else blocks
        received = 1 if operation.scatters else blocks
        allocated = operation.name not in self.in_place | self.returned
        return sent, received if allocated else 0

    def needed_bytes(self, operation: Operation, elements: int) -> int:
        """Return the bytes of all buffers of this rank, including a result that a call returns."""
        sent, received = self.block_counts(operation)
        if operation.name in self.returned:
            received = 1 if operation.scatters else operation.blocks(self.strategy.size)
        return (sent + received) * elements * self.dtype.itemsize

    def barrier(self) -> None:
        """Wait until all ranks have arrived, and their devices have finished."""
        self.synchronize()
        self.strategy.any(False)

    def synchronize(self) -> None:
        """Wait until the device of this rank has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the versions of the library and of the communication software."""

    def close(self) -> None:
        """Leave the group of ranks."""
        self.strategy.close()

    def _buffer(self, elements: int) -> Tensor:
        return torch.empty(elements, dtype=self.dtype, device=self.device)
