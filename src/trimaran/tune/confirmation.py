"""Confirm the fastest configuration against the recipe itself, by alternating runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from trimaran.compare.noise import CONFIDENCE, quantile

LEAST = 3
"""Pairs of runs that a confirmation needs; with fewer ones, the interval is very wide."""

PLANNED = 4
"""Pairs for which the search leaves time."""

MOST = 8
"""Pairs after which a confirmation ends, even if time is left."""

Pair = tuple[float, float]
"""Rates of two runs, one after the other: of the recipe, and of the candidate."""


@dataclass(frozen=True)
class Gain:
    """The mean relative gain of the candidate, with its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0


def gain(pairs: Sequence[Pair]) -> Gain:
    """Return the gain of two or more pairs: Student's t interval of the mean log ratio.

    Each ratio compares neighbouring runs, so that a slow drift of the machine affects both alike.
    """
    ratios = [math.log(tuned / default) for default, tuned in pairs]
    mean = fmean(ratios)
    half = quantile(0.5 + CONFIDENCE / 2, len(ratios) - 1) * stdev(ratios) / math.sqrt(len(ratios))
    return Gain(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))


def alternate(
    default: Callable[[int], float | None], candidate: Callable[[int], float | None],
    may_go_on: Callable[[], bool],
) -> list[Pair]:
    """Return the rates of alternating runs; every second pair begins with the candidate.

    Args:
        default: runs the recipe for the pair with this number, and returns its rate; None: failed.
        candidate: the same for the candidate.
        may_go_on: whether time is left for another pair, after the first `LEAST` ones.
    """
    pairs: list[Pair] = []
    for number in range(1, MOST + 1):
        if number > LEAST and not may_go_on():
            break
        if number % 2:
            first, second = default(number), candidate(number)
        else:
            second = candidate(number)
            first = default(number)
        if first is None or second is None:
            return []  # what fails once is no candidate
        pairs.append((first, second))
    return pairs
