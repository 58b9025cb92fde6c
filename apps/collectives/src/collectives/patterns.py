"""Test data, whose results every number format represents exactly, and the check of a result.

The values are small integers that differ between ranks, blocks and positions, so that a lost
summand, a swap of two blocks and a shift by some elements are detected. A buffer repeats a tile,
whose length is a multiple of a prime, so that blocks of a power of 2 elements begin at different
positions of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Tile = npt.NDArray[np.int64]

PERIOD = 251
"""Minimum length of a tile, in elements.

A tile is a sequence of numbers; a block of a buffer consists of repetitions of its tile.
"""
LEVELS = 4
"""Largest number that a rank contributes to a sum over the ranks.

The numbers are from 1 to this one. With many ranks, a rank contributes 0 at some positions, so
that the sum stays exact.
"""
POISON = -1
"""Value in a buffer before it receives a result; no result contains it."""
PART = 1 << 18
"""Elements that are compared at once, so that a comparison needs little memory."""

EXACT = {torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8}
"""Number format -> the largest integer up to which it represents every integer exactly."""

_LEVEL = np.random.default_rng(7).integers(0, LEVELS, PERIOD)
_LEVEL.flags.writeable = False


@cache
def moved(source: int, target: int) -> Tile:
    """Return data that rank `source` sends to rank `target`: integers from 0 to 255.

    Each format of `EXACT` represents these integers exactly. They depend on
    7 * `source` + 34 * `target`, so that any two ranks whose numbers differ by less than 256 send
    different data, and the data from rank A to rank B differ from the data from B to A.
    """
    found: Tile = (np.arange(PERIOD) + 7 * source + 34 * target) % 256
    return found


@cache
def summand(rank: int, block: int, ranks: int, exact: int) -> Tile:
    """Return the numbers that `rank` adds to block `block` of a sum over `ranks` ranks.

    The numbers are from 1 to `LEVELS`. All partial sums, in any order, must be at most `exact`, the
    largest exact integer of the number format. If there are too many ranks for this limit, a rank
    adds such a number at every n-th position only, and 0 elsewhere; the positions differ from rank
    to rank. n is `ranks * LEVELS / exact`, rounded up.
    """
    stride = -(-ranks * LEVELS // exact)
    position = np.arange(PERIOD * stride)
    values = 1 + (_LEVEL[(position + 5 * block) % PERIOD] + rank) % LEVELS
    return np.where((position + block - rank) % stride == 0, values, 0)


@cache
def total(block: int, ranks: int, exact: int) -> Tile:
    """Return the exact sum of the summands of all ranks in `block`."""
    found: Tile = summand(0, block, ranks, exact).copy()
    for rank in range(1, ranks):
        found += summand(rank, block, ranks, exact)
    return found


@dataclass(frozen=True)
class Fault:
    """The first wrong element of a buffer: its position, its value, and the correct value."""

    position: int
    found: float
    expected: float


def fill(buffer: Tensor, tiles: Sequence[Tile]) -> None:
    """Divide `buffer` into one block for each tile, and fill each block by repeating its tile.

    If `tiles` is empty, all elements of `buffer` are set to `POISON`.
    """
    if not tiles:
        buffer.fill_(POISON)
    for _, part, values in _parts(buffer, tiles):
        part.copy_(values)


def fault(buffer: Tensor, tiles: Sequence[Tile]) -> Fault | None:
    """Return the first element of `buffer` that differs from its expected value, or None.

    The result has the index, the value and the expected value of the element.

    Args:
        buffer: the buffer after an operation, with one block for each tile.
        tiles: for each block, the numbers that are repeated in it.
    """
    for start, part, values in _parts(buffer, tiles):
        unequal = part != values
        if bool(unequal.any()):
            first = int(unequal.nonzero()[0])
            return Fault(start + first, float(part[first]), float(values[first]))
    return None


def _parts(buffer: Tensor, tiles: Sequence[Tile]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the parts of `buffer`: start, elements, and the expected values of the part."""
    length = len(buffer) // max(1, len(tiles))
    for number, tile in enumerate(tiles):
        repeats = -(-min(length, PART) // len(tile))
        whole = torch.from_numpy(np.tile(tile, repeats)).to(buffer.device, buffer.dtype)
        end = (number + 1) * length
        for start in range(number * length, end, len(whole)):
            part = buffer[start : min(start + len(whole), end)]
            yield start, part, whole[: len(part)]
