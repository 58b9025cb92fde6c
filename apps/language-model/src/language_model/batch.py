"""A batch of token sequences, and its division among context ranks and into micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100  # the target of a token that fills a batch; cross_entropy skips it


@dataclass(frozen=True)
class Batch:
    """The sequences of one data rank, or the part of their tokens that one context rank processes.

    Attributes:
        tokens: the tokens, (sequences, tokens), int64.
        targets: the token after each token, (sequences, tokens); `IGNORED` for padding.
        positions: position of each token in its sequence, (sequences, tokens).
        documents: number of the document of each token; None if documents are not distinguished.
    """

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    documents: Tensor | None = None

    def part(self, index: int, number: int) -> Batch:
        """Divide each sequence into `number` consecutive parts; return part `index` of each."""
        return self._each(lambda array: array.chunk(number, 1)[index].contiguous())

    def to(self, device: torch.device) -> Batch:
        """Return the batch on `device`."""
        return self._each(lambda array: array.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        return Batch(
            change(self.tokens), change(self.targets), change(self.positions),
            None if self.documents is None else change(self.documents),
        )

    def parts(self, number: int) -> list[Batch]:
        """Return the batch, divided into `number` micro-batches."""
        documents = [None] * number if self.documents is None else self.documents.chunk(number)
        return [
            Batch(*parts) for parts in zip(
                self.tokens.chunk(number), self.targets.chunk(number),
                self.positions.chunk(number), documents, strict=True,
            )
        ]

    def more(self) -> dict[str, Tensor]:
        """Return the arguments that every stage of a decoder gets in addition to its input."""
        known = {"positions": self.positions, "documents": self.documents}
        return {name: value for name, value in known.items() if value is not None}
