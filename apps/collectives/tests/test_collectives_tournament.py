"""Tests of the rounds in which nodes are paired.

The pairs of a round are disjoint, each two nodes form a pair in one round, and there are as few
rounds as possible.
"""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from collectives import tournament


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 13, 64])
def test_every_two_nodes_meet_once_in_disjoint_pairs(count: int) -> None:
    rounds = tournament.rounds(count)
    assert len(rounds) == count - 1 + count % 2
    assert sorted(chain(*rounds)) == list(combinations(range(count), 2))
    for pairs in rounds:
        assert len(set(chain(*pairs))) == 2 * len(pairs) == count - count % 2


def test_a_single_node_has_no_pairs() -> None:
    assert tournament.rounds(1) == []
