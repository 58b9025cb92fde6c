"""Assign samples to splits by a hash of their content; equal samples are in the same split."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping

Shares = Mapping[str, tuple[int, int]]
"""A dictionary that maps the name of each split to its range of the numbers 0 to 99.

A sample belongs to the split whose range contains the hash of the sample modulo 100. For
example, (90, 100) stands for the numbers 90 to 99.
"""


def split_of(content: bytes, shares: Shares) -> str:
    """Return the name of the split whose range contains the SHA-256 of `content` modulo 100.

    For the ranges, see `Shares`.
    """
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
