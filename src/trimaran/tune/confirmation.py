"""Confirm the fastest configuration against the recipe itself, by alternating runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from trimaran.compare.noise import CONFIDENCE, quantile

LEAST = 3
"""Minimum number of pairs of runs; with fewer pairs, the confidence interval is very wide."""

PLANNED = 4
"""Number of pairs of runs for which the search leaves enough time."""

MOST = 8
"""Maximum number of pairs of runs in a confirmation, even if time is left."""

Pair = tuple[float, float]
"""Rates of two consecutive runs: the rate of the recipe, and the rate of the candidate."""


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

    Each ratio compares two consecutive runs. Therefore a slow drift of the machine's speed affects
    both runs equally.
    """
    ratios = [math.log(tuned / default) for default, tuned in pairs]
    mean = fmean(ratios)
    half = quantile(0.5 + CONFIDENCE / 2, len(ratios) - 1) * stdev(ratios) / math.sqrt(len(ratios))
    return Gain(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))


def alternate(
    default: Callable[[int], float | None], candidate: Callable[[int], float | None],
    may_go_on: Callable[[], bool],
) -> list[Pair]:
    """Run the recipe and the candidate alternately, and return the rates of each pair of runs.

    Every second pair begins with the candidate. The result is empty if a run failed.

    Args:
        default: function that runs the recipe for the pair with the number in its argument, and
            returns the rate of the run, or None if the run failed.
        candidate: function that runs the candidate in the same way.
        may_go_on: function that returns whether time is left for a pair after the first `LEAST`.
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
