"""A cache for the keys and values of earlier tokens, which a decoder reads in its later passes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Cache:
    """The keys and values of a batch of sequences of different lengths, in each attention layer.

    Each sequence has a slot for each of its positions, so that sequences need not begin or end
    together. A pass has the same number of tokens for each sequence. If a sequence has fewer new
    tokens than the others, its last token is repeated as padding, at the same position.

    Args:
        slots: largest number of tokens of a sequence.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._at: tuple[Tensor, Tensor] | None = None

    def mask(self, positions: Tensor) -> Tensor:
        """Begin a pass; return which slots each token may see, (batch, 1, tokens, slots).

        A token sees the slots at its own and at earlier positions, which are all filled.

        Args:
            positions: position of each token in its sequence, (batch, tokens).
        """
        rows = torch.arange(len(positions), device=positions.device)[:, None]
        self._at = rows, positions
        slots = torch.arange(self._slots, device=positions.device)
        return positions[:, None, :, None] >= slots

    def extend(self, layer: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of a pass, and return the keys and values of all slots.

        The returned arrays have the shape (batch, heads, slots, width).

        Args:
            layer: the attention layer.
            key: keys of the tokens of this pass, (batch, heads, tokens, width).
            value: values of the same tokens, of the same shape as `key`.
        """
        if layer not in self._kept:
            shape = (*key.shape[:2], self._slots, key.shape[3])
            self._kept[layer] = key.new_zeros(shape), value.new_zeros(shape)
        assert self._at is not None  # noqa: S101 - `mask` begins a pass
        rows, positions = self._at
        for kept, new in zip(self._kept[layer], (key, value), strict=True):
            kept[rows, :, positions] = new.transpose(1, 2)
        return self._kept[layer]
