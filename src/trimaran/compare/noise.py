"""Decide whether a difference between runs is more than noise.

The statistical method depends on how many runs the two groups have (see `METHODS`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import Literal, NamedTuple

CONFIDENCE = 0.95
"""Confidence level of each two-sided interval."""

CONFIDENT = f"{100 * CONFIDENCE:.0f} %"

LEAST = 20
"""Minimum number of readings of each run that a comparison of two single runs needs.

The function `stretches` divides 20 readings into four groups of successive readings.
"""

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
    " Biometrika 34, 1947); it assumes that the runs of each group are independent and"
    " approximately normal.",
    ONE_NEW: f"{CONFIDENT} prediction interval of Student's t for one more run; it assumes that"
    " this run scatters as the runs of the group do, and that they are independent and"
    " approximately normal.",
    STRETCHES: f"One run against one run: Welch's t interval, {CONFIDENT}, of the medians of"
    " stretches. A run of n windows is cut into about sqrt(n) stretches, because neighbouring"
    " windows are correlated. The interval covers the fluctuation within these two runs only:"
    " one run of each kind does not show the scatter between repeated runs.",
    NONE: "One run against one run, with one value each: the scatter between repeated runs is not"
    " known. Run each with several seeds.",
}
"""A dictionary that maps each statistical method to a note on its formula and its assumptions."""


class Difference(NamedTuple):
    """The difference of two groups: the mean of the second group minus the mean of the first group.

    Attributes:
        value: difference of the means.
        low: lower end of the confidence interval; None if no interval can be computed.
        high: upper end of the confidence interval; None if no interval can be computed.
        outcome: whether the difference is more than noise.
        method: the statistical method, a key of METHODS.
    """

    value: float
    low: float | None
    high: float | None
    outcome: Outcome
    method: str


def between(
    first: Sequence[float], second: Sequence[float],
    windows: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Difference:
    """Return the difference of a metric between two groups, and whether it is more than noise.

    Args:
        first: values of the metric in the first group, one for each run.
        second: values of the metric in the second group, one for each run.
        windows: for each of two single runs, the rates of successive parts of the run, whose median
            is the value of the run. None if the values are not such medians; it is not used if a
            group has several runs.
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
    """Return half the width of Welch's confidence interval for the difference of two means.

    The degrees of freedom are computed by Satterthwaite's formula.
    """
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
    if half == 0:  # identical repeats (one seed, for example) contain no information on noise
        return Difference(value, None, None, "not known" if value else "no difference", method)
    more: Outcome = "more than noise within the runs" if method == STRETCHES else "more than noise"
    outcome = more if abs(value) > half else "within noise"
    return Difference(value, value - half, value + half, outcome, method)


def stretches(windows: Sequence[float]) -> list[float]:
    """Divide n successive readings into floor(sqrt(n)) stretches, and return the median of each.

    A stretch is a group of successive readings. The stretches have equal lengths, up to one
    reading. The means of such stretches ("batch means") are nearly independent, although successive
    readings are correlated (Law and Kelton, Operations Research 32, 1984, 1221-1239). The number of
    stretches follows Jones, Haran, Caffo and Neath, JASA 101 (2006), 1537-1547. Medians replace
    means, because the value of a run is a median.
    """
    count = math.isqrt(len(windows))
    return [
        median(windows[len(windows) * place // count : len(windows) * (place + 1) // count])
        for place in range(count)
    ]


_TINY = 1e-300
_CLOSE = 1e-15
_MOST = 10_000


def cdf(t: float, df: float) -> float:
    """Return P(T <= t) of Student's t distribution with `df` > 0 degrees of freedom.

    The probability has about 14 correct digits. It is computed from the incomplete beta function
    (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1 and 26.5.27).
    """
    return 0.5 + math.copysign(0.5 * _beta(0.5, df / 2, t * t / (df + t * t)), t)


def quantile(p: float, df: float) -> float:
    """Return the quantile t of Student's t distribution, with P(T <= t) = `p`, for 0.5 <= `p` < 1.

    `df` is the number of degrees of freedom. The method is bisection.
    """
    low, high = 0.0, 1.0
    while cdf(high, df) < p:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, df) < p else (low, middle)
    return high


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b).

    If x <= (a + 1) / (a + b + 2), the continued fraction 8.17.22 of NIST's Digital Library of
    Mathematical Functions (DLMF) is used, which converges fast. For a greater x, the symmetry
    relation 8.17.4 is applied first.
    """
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    front = math.exp(
        a * math.log(x) + b * math.log1p(-x)
        + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    )
    return front / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """Return 1 + d1 / (1 + d2 / (1 + ...)) with the coefficients d of DLMF 8.17.23.

    The method is Lentz's method, as modified by Thompson and Barnett, J. Comput. Phys. 64 (1986),
    490-509.
    """
    value = upper = 1.0
    lower = 0.0
    for number in range(1, _MOST):
        m = number // 2
        if number % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / ((1 + d * lower) or _TINY)
        upper = (1 + d / upper) or _TINY
        value *= upper * lower
        if abs(upper * lower - 1) < _CLOSE:
            break
    return value
