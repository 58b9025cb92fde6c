"""Minimum, median and maximum of a few measurements, and ratios of paired measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Measurements of one quantity, one per round, in the order of the rounds.

    Raises:
        ValueError: the list of measurements is empty.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("no measurements")

    @property
    def low(self) -> float:
        """Return the smallest value."""
        return min(self.values)

    @property
    def median(self) -> float:
        """Return the middle value, or the mean of the two middle values."""
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        """Return the largest value."""
        return max(self.values)


def ratios(of: Spread, over: Spread) -> Spread:
    """Return `of` / `over` round by round.

    Both contestants run within minutes of each other in a round. Therefore the load of the machine
    cancels better than in the ratio of two medians.

    Raises:
        ValueError: the numbers of rounds differ.
    """
    return Spread(tuple(a / b for a, b in zip(of.values, over.values, strict=True)))


def over_windows(rates: Sequence[float]) -> float:
    """Return the mean rate of windows with equal numbers of images: all images / all seconds.

    Raises:
        ValueError: there is no window, or a rate is not positive.
    """
    if not rates or min(rates) <= 0:
        raise ValueError(f"no positive rates: {list(rates)}")
    return statistics.harmonic_mean(rates)
