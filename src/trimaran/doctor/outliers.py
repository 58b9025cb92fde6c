"""Find outliers among the measured values of nodes, by robust statistics.

With four values or more, a value x is an outlier if its modified z-score is too large:
|0.6745 (x - median) / MAD| > 3.5 (Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC,
1993). MAD is the median of the absolute deviations from the median. Median and MAD stay meaningful
if fewer than half of the values are bad. If the values are almost equal, even a tiny deviation has
a large score. Therefore, the relative deviation from the median must also exceed the argument
`least`. With fewer values, or with a MAD of 0, only the relative deviation is tested.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from statistics import median
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

CONSISTENT = 0.6745
"""The factor in the modified z-score: MAD / standard deviation of a normal distribution.

It is the 0.75 quantile of the standard normal distribution.
"""

MOST_SCORE = 3.5
FEWEST = 4
"""Smallest number of values for which the modified z-score is computed."""

FEW = 2.0
"""Factor by which the threshold `least` is multiplied if the modified z-score cannot be computed.

This is the case with fewer than `FEWEST` values, or with a MAD of 0.
"""


def worse(values: Mapping[Name, float], least: float, *, lower: bool = True) -> dict[Name, float]:
    """Return the bad outliers among `values`, with their relative deviations.

    If there are only two values and they differ too much, both are returned, because it is unknown
    which value is bad.

    Args:
        values: name -> value; the values are positive.
        least: smallest relevant deviation from the median, as a fraction of the median.
        lower: True: low values are bad; False: high values are bad.

    Returns:
        Name -> relative deviation, (value - median) / median. If there are only two values, the
        deviation of each value is relative to the other value.
    """
    if len(values) < 2:
        return {}
    if len(values) == 2:
        return _two(values, FEW * least)
    middle = median(values.values())
    spread = median(abs(value - middle) for value in values.values())
    found = {}
    for name, value in values.items():
        deviation = (value - middle) / middle if middle else 0.0
        bad = -deviation if lower else deviation
        if len(values) < FEWEST or spread == 0:
            out = bad > FEW * least
        else:
            score = CONSISTENT * abs(value - middle) / spread
            out = score > MOST_SCORE and bad > least
        if out:
            found[name] = deviation
    return found


def _two(values: Mapping[Name, float], limit: float) -> dict[Name, float]:
    (one, first), (other, second) = values.items()
    if max(first, second) - min(first, second) <= limit * max(first, second):
        return {}
    return {one: _relative(first, second), other: _relative(second, first)}


def _relative(value: float, other: float) -> float:
    return (value - other) / other if other else 1.0


def of_pairs(
    pairs: Mapping[tuple[str, str], float], least: float
) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Find slow nodes, and slow pairs of nodes, from the bandwidths of pairs.

    A node is slow if the median bandwidth of its pairs is an outlier. A slow node makes all pairs
    with this node slow. Every other node is in only one of these pairs, so its median hardly
    changes. If a pair is slow, but both of its nodes are normal, the fault is on the network path.

    Args:
        pairs: pair of nodes -> measured bandwidth.
        least: as in `worse`.

    Returns:
        Two dictionaries: slow node -> relative deviation of its median bandwidth, and slow pair of
        normal nodes -> relative deviation of its bandwidth.
    """
    partners: dict[str, list[float]] = {}
    for pair, value in pairs.items():
        for node in pair:
            partners.setdefault(node, []).append(value)
    alone = any(len(own) < 2 for own in partners.values())
    # If a node has only one pair, its median cannot tell which node of the pair is slow.
    nodes = {} if alone else worse({node: median(own) for node, own in partners.items()}, least)
    single = worse(pairs, least) if len(pairs) > 2 else {}
    rest = {pair: by for pair, by in single.items() if not set(pair) & nodes.keys()}
    return nodes, rest
