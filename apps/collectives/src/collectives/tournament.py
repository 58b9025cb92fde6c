"""Rounds of disjoint pairs, in which each pair of N nodes occurs exactly once.

The circle method: one node keeps its place, the others move by one place each round (Kirkman 1847;
Berge, "Graphs and Hypergraphs", 1973). N nodes need N - 1 rounds if N is even. If N is odd, they
need N rounds, and one node pauses in each round. All pairs of a round are measured at the same
time.
"""

from __future__ import annotations

Pair = tuple[int, int]


def rounds(count: int) -> list[list[Pair]]:
    """Return rounds of disjoint pairs of nodes, in which any two of `count` nodes meet once.

    The nodes have the numbers from 0. Each pair has the smaller number first.
    """
    if count < 2:
        return []
    places: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        found.append([
            (min(one, other), max(one, other)) for one, other in facing
            if one is not None and other is not None
        ])
        places = [places[0], places[-1], *places[1:-1]]
    return found
