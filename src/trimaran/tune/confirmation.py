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
"""Maximum number of pairs of runs in a confirmation, even if time for more pairs is left."""

Pair = tuple[float, float]
"""Rates of two consecutive runs in the same unit, such as samples per second.

The first rate was measured with the recipe, and the second with the faster settings to confirm.
"""


@dataclass(frozen=True)
class Gain:
    """The mean relative gain in speed by the tuned settings, such as 0.05 for 5 % more.

    `low` and `high` are the bounds of the confidence interval.
    """

    value: float
    low: float
    high: float

    @property
    def is_real(self) -> bool:
        """Whether the candidate is really faster: the whole confidence interval is above 0."""
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
        default: function that runs the recipe; it gets the number of the pair, counted from 1, and
            returns the rate of the run, or None if the run failed.
        candidate: the same function for the candidate, the settings to confirm.
        may_go_on: function that returns whether time is left for another pair. It is called
            only after the first `LEAST` pairs.
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
