"""Assign samples to splits by the hash of their content, so that equal samples share a split."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping

Shares = Mapping[str, tuple[int, int]]
"""Split -> its half-open range of the numbers from 0 to 99."""


def split_of(content: bytes, shares: Shares) -> str:
    """Return the split of a sample: its SHA-256 modulo 100 is in the range of the split."""
    at = int(hashlib.sha256(content).hexdigest(), 16) % 100
    return next(name for name, (first, end) in shares.items() if first <= at < end)


def check(shares: Shares) -> None:
    """Check that each number from 0 to 99 belongs to exactly one split.

    Raises:
        ValueError: the ranges have a gap or an overlap.
    """
    ends = [0, *itertools.chain(*sorted(shares.values())), 100]
    if ends[::2] != ends[1::2]:
        raise ValueError("splits: their percent must cover 0 to 100 without gap or overlap")
