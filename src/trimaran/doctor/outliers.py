"""Which values fall out of line: robust statistics for a few nodes or for thousands.

With four values or more, the modified z-score of Iglewicz and Hoaglin ("How to Detect and Handle
Outliers", ASQC, 1993): |0.6745 (x - median) / MAD| > 3.5, where MAD is the median of the absolute
deviations from the median. Both are unaffected as long as fewer than half of the values are bad.
The score alone would name a node of very even ones, so that a deviation must also be relevant. The
score needs a MAD above 0 and enough values; otherwise, the relative deviation decides alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from statistics import median
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

CONSISTENT = 0.6745
"""The MAD of a normal distribution in standard deviations: the 0.75 quantile."""

MOST_SCORE = 3.5
FEWEST = 4
"""Least number of values for the score."""

FEW = 2.0
"""With fewer values, or without spread, the deviation must exceed this multiple of `least`."""


def worse(values: Mapping[Name, float], least: float, *, lower: bool = True) -> dict[Name, float]:
    """Return the values that are out of line on the bad side, with their relative deviation.

    Of two values, it is unknown which one is wrong: both are returned if they differ.

    Args:
        values: the value of each name; they are positive.
        least: smallest relevant deviation from the median, relative to it.
        lower: whether low values are bad; else high values are.

    Returns:
        Name -> (value - median) / median; for two values, the other one replaces the median.
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
    """Return the nodes and the single pairs whose bandwidth is out of line.

    A node is out of line if the median over its pairs is: a bad node makes all of its pairs slow,
    but those of its partners only once, so that they are not blamed. A pair of other nodes that is
    slow has a fault on the way between the two.

    Args:
        pairs: the bandwidth of each measured pair.
        least: as in `worse`.

    Returns:
        Node -> relative deviation of its median, and pair -> relative deviation.
    """
    partners: dict[str, list[float]] = {}
    for pair, value in pairs.items():
        for node in pair:
            partners.setdefault(node, []).append(value)
    alone = any(len(own) < 2 for own in partners.values())
    # With one pair for a node, its median would blame both ends.
    nodes = {} if alone else worse({node: median(own) for node, own in partners.items()}, least)
    single = worse(pairs, least) if len(pairs) > 2 else {}
    rest = {pair: by for pair, by in single.items() if not set(pair) & nodes.keys()}
    return nodes, rest
