"""Whether a difference is more than the noise: three cases, each with its method and its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import Literal, NamedTuple

from trimaran.compare.t_distribution import quantile

CONFIDENCE = 0.95
"""Of each interval, two-sided."""

CONFIDENT = f"{100 * CONFIDENCE:.0f} %"

LEAST = 20
"""Windows below which the fluctuation within a run is not judged: these make four stretches."""

Outcome = Literal[
    "no difference", "within noise", "more than noise", "more than noise within the runs",
    "not known",
]

WELCH = "Welch"
ONE_NEW = "prediction"
STRETCHES = "stretches"
NONE = "none"

METHODS = {
    WELCH: f"Welch's t interval, {CONFIDENT}, for the difference of two means (Welch,"
    " Biometrika 34, 1947); it takes the runs of each group to be independent and about normal.",
    ONE_NEW: f"{CONFIDENT} prediction interval of Student's t for one more run; it takes this"
    " run to scatter as those of the group do, and these to be independent and about normal.",
    STRETCHES: f"One run against one: each is cut into about the root of its windows many"
    f" stretches, for neighbouring windows are alike; Welch's t interval, {CONFIDENT}, of the"
    " medians of the stretches. It tells of the fluctuation within these two runs only: how far"
    " one run lies from the next, nobody knows from one of each.",
    NONE: "One run against one, with one value each: how much runs scatter is not known. Run each"
    " over several seeds.",
}
"""What a reader of an interval must know."""


class Difference(NamedTuple):
    """The second less the first: `low` and `high` are the interval, where there is one."""

    value: float
    low: float | None
    high: float | None
    outcome: Outcome
    method: str


def between(
    first: Sequence[float], second: Sequence[float],
    windows: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Difference:
    """Compare the values of the runs of two groups, one for each run.

    `windows` are, where both are one run, the readings that its value is the median of, in order.
    """
    value = fmean(second) - fmean(first)
    if len(first) > 1 and len(second) > 1:
        return _judged(value, _half_width(first, second), WELCH)
    if len(first) > 1 or len(second) > 1:
        return _one_new(value, first if len(first) > 1 else second)
    if windows is not None and min(map(len, windows)) >= LEAST:
        return _judged(value, _half_width(*map(stretches, windows)), STRETCHES)
    return Difference(value, None, None, "not known" if value else "no difference", NONE)


def _half_width(first: Sequence[float], second: Sequence[float]) -> float:
    """Return half the width of Welch's interval; the degrees of freedom are Satterthwaite's."""
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    whole = sum(part for part, _ in parts)
    if whole == 0:
        return 0.0
    df = whole**2 / sum(part**2 / free for part, free in parts)
    return quantile(0.5 + CONFIDENCE / 2, df) * math.sqrt(whole)


def _one_new(value: float, group: Sequence[float]) -> Difference:
    spread = math.sqrt(variance(group) * (1 + 1 / len(group)))
    half = quantile(0.5 + CONFIDENCE / 2, len(group) - 1) * spread
    return _judged(value, half, ONE_NEW)


def _judged(value: float, half: float, method: str) -> Difference:
    if half == 0:  # repeats that cannot differ, such as of one seed, tell of no noise
        return Difference(value, None, None, "not known" if value else "no difference", method)
    more: Outcome = "more than noise within the runs" if method == STRETCHES else "more than noise"
    outcome = more if abs(value) > half else "within noise"
    return Difference(value, value - half, value + half, outcome, method)


def stretches(windows: Sequence[float]) -> list[float]:
    """Return the medians of as many equal stretches as the root of the number of windows.

    Means of such stretches ("batch means") are nearly independent though neighbours are not:
    Law and Kelton, Operations Research 32 (1984), 1221-1239; with a root of stretches: Jones,
    Haran, Caffo and Neath, JASA 101 (2006), 1537-1547. Medians, for the value of a run is one.
    """
    count = math.isqrt(len(windows))
    return [
        median(windows[len(windows) * place // count : len(windows) * (place + 1) // count])
        for place in range(count)
    ]
