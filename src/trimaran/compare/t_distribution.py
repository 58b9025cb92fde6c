"""Student's t distribution, which the standard library lacks, without a dependency on SciPy."""

from __future__ import annotations

import math

_TINY = 1e-300
_CLOSE = 1e-15
_MOST = 10_000


def cdf(t: float, df: float) -> float:
    """Return P(T <= t) for `df` > 0 degrees of freedom, to about 14 digits.

    It is computed from the incomplete beta function: Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.1 and 26.5.27.
    """
    tail = 0.5 * _beta(df / 2, 0.5, df / (df + t * t))
    return 1 - tail if t > 0 else tail


def quantile(p: float, df: float) -> float:
    """Return the t with P(T <= t) = `p`, for 0.5 <= `p` < 1, by bisection."""
    low, high = 0.0, 1.0
    while cdf(high, df) < p:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, df) < p else (low, middle)
    return high


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b).

    For x <= (a + 1) / (a + b + 2) the continued fraction 8.17.22 of NIST's Digital Library of
    Mathematical Functions converges fast. Greater x are reflected by 8.17.4.
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

    The method is that of Lentz, as modified by Thompson and Barnett, J. Comput. Phys. 64 (1986),
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
