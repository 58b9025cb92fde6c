"""Tests of the data that ranks exchange: sums are exact, and wrong results are detected.

Every number format represents the sums exactly. The data differ between ranks and
positions, so that a lost summand, a swap of two blocks, and a shift are detected.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as some

from collectives import patterns

RANKS = some.sampled_from([2, 3, 8, 64, 65, 130])


@settings(max_examples=10, deadline=None)
@given(ranks=RANKS, dtype=some.sampled_from(list(patterns.EXACT)), block=some.integers(0, 50))
@example(ranks=130, dtype=torch.bfloat16, block=0)
def test_sums_are_exact_in_any_order(ranks: int, dtype: torch.dtype, block: int) -> None:
    exact = patterns.EXACT[dtype]
    whole = patterns.total(block, ranks, exact)
    assert whole.max() <= exact  # partial sums are smaller, because no summand is negative
    rounded = torch.from_numpy(np.arange(exact + 1)).to(dtype).to(torch.int64)
    assert (rounded == torch.arange(exact + 1)).all()


@settings(max_examples=10, deadline=None)
@given(ranks=RANKS, lost=some.integers(0, 299), dtype=some.sampled_from(list(patterns.EXACT)))
def test_each_rank_counts(ranks: int, lost: int, dtype: torch.dtype) -> None:
    assert patterns.summand(lost % ranks, 0, ranks, patterns.EXACT[dtype]).any()


def test_few_ranks_count_at_each_position() -> None:
    for rank in range(64):
        tile = patterns.summand(rank, 0, 64, 256)
        assert len(tile) == patterns.PERIOD
        assert tile.min() == 1
        assert tile.max() == patterns.LEVELS


def test_blocks_of_different_ranks_differ() -> None:
    tiles = [patterns.moved(source, target) for source in range(9) for target in range(9)]
    assert max(tile.max() for tile in tiles) <= 255
    for one, other in itertools.combinations(tiles, 2):
        assert (one != other).any()
    assert all((patterns.moved(a, b) != patterns.moved(b, a)).all()
               for a in range(40) for b in range(a))


@pytest.mark.parametrize("dtype", patterns.EXACT)
@pytest.mark.parametrize("length", [1, 7, 251, 1000, 280_000])
def test_a_filled_buffer_is_right_and_each_change_is_found(
    dtype: torch.dtype, length: int
) -> None:
    tiles = [patterns.moved(0, 0), patterns.moved(1, 0), patterns.moved(2, 0)]
    buffer = torch.empty(3 * length, dtype=dtype)
    patterns.fill(buffer, tiles)
    assert patterns.fault(buffer, tiles) is None
    for place in {0, length - 1, length, 3 * length - 1}:
        before = float(buffer[place])
        buffer[place] = patterns.POISON
        assert patterns.fault(buffer, tiles) == patterns.Fault(place, -1, before)
        buffer[place] = before
    swapped = [tiles[1], tiles[0], tiles[2]]
    assert patterns.fault(buffer, swapped) is not None


@pytest.mark.parametrize("shift", [1, 2, 4, 64, 256, 1024])
def test_a_shift_is_found(shift: int) -> None:
    buffer = torch.empty(4096)
    for tile in (patterns.moved(0, 0), patterns.summand(0, 0, 2, 256)):
        patterns.fill(buffer, [tile])
        assert patterns.fault(buffer.roll(shift), [tile]) is not None


def test_without_tiles_a_buffer_has_no_result() -> None:
    buffer = torch.empty(5)
    patterns.fill(buffer, ())
    assert buffer.tolist() == [patterns.POISON] * 5
    assert patterns.fault(buffer, ()) is None
