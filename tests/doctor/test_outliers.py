"""Outliers: one bad node is found despite noise, and equal nodes are never reported."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.doctor import outliers

NOISE = 0.015
"""Largest relative noise of a value.

Even if the median absolute deviation (MAD) is twice this noise, a value that deviates by
20 % has a score above 3.5, the limit for outliers.
"""
SEEDS = st.integers(0, 1 << 30)


def noisy(count: int, seed: int) -> dict[str, float]:
    """Return values around 100 with up to 1.5 % of noise."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return {f"n{number}": 100 * (1 + draw.uniform(-NOISE, NOISE)) for number in range(count)}


@given(st.integers(2, 40), SEEDS)
def test_even_nodes_are_not_named(count: int, seed: int) -> None:
    assert outliers.worse(noisy(count, seed), 0.05) == {}
    assert outliers.worse(noisy(count, seed), 0.05, lower=False) == {}


@given(st.integers(3, 40), SEEDS)
def test_a_node_that_is_a_fifth_slower_is_named_and_no_other(count: int, seed: int) -> None:
    values = noisy(count, seed)
    values["n1"] *= 0.8
    found = outliers.worse(values, 0.05)
    assert list(found) == ["n1"]
    assert found["n1"] == pytest.approx(-0.2, abs=0.04)


@given(st.integers(3, 40), SEEDS)
def test_a_slow_time_is_high(count: int, seed: int) -> None:
    values = noisy(count, seed)
    values["n0"] *= 1.25
    assert list(outliers.worse(values, 0.05, lower=False)) == ["n0"]
    assert outliers.worse(values, 0.05) == {}


def test_the_score_is_that_of_iglewicz_and_hoaglin() -> None:
    # Median 100, MAD 2: the limit is 100 - 3.5 * 2 / 0.6745 = 89.62.
    values = dict(zip("abcdef", (96.0, 98.0, 100.0, 102.0, 104.0, 89.7), strict=True))
    values["g"] = 100.0
    assert outliers.worse(values, 0.05) == {}
    values["f"] = 89.5
    assert outliers.worse(values, 0.05) == {"f": pytest.approx(-0.105)}


def test_a_deviation_that_does_not_matter_is_not_named() -> None:
    values = {f"n{number}": 100 + number / 100 for number in range(8)} | {"slow": 95.5}
    assert outliers.worse(values, 0.05) == {}
    assert list(outliers.worse(values | {"slow": 94.5}, 0.05)) == ["slow"]


def test_without_spread_the_deviation_decides() -> None:
    even = {f"n{number}": 100.0 for number in range(7)}
    assert outliers.worse(even | {"slow": 91.0}, 0.05) == {}
    assert list(outliers.worse(even | {"slow": 89.0}, 0.05)) == ["slow"]


def test_three_values_are_compared_by_their_deviation() -> None:
    assert outliers.worse({"a": 100.0, "b": 101.0, "c": 91.0}, 0.05) == {}
    assert list(outliers.worse({"a": 100.0, "b": 101.0, "c": 89.0}, 0.05)) == ["c"]


def test_of_two_that_differ_both_are_named() -> None:
    assert outliers.worse({"a": 100.0, "b": 91.0}, 0.05) == {}
    assert outliers.worse({"a": 100.0, "b": 80.0}, 0.05) == {
        "a": pytest.approx(0.25), "b": pytest.approx(-0.2)
    }
    assert outliers.worse({"a": 100.0}, 0.05) == {}
    assert set(outliers.worse({"a": 1.0, "b": 0.0}, 0.05)) == {"a", "b"}


def pairs(values: dict[str, float], seed: int, slow: dict[frozenset[str], float]) \
        -> dict[tuple[str, str], float]:
    """Return noisy rates of all pairs of nodes.

    Without noise, the rate of a pair is the rate of its slower node in `values`, times the factor
    of the pair in `slow` (1 if `slow` lacks the pair).
    """
    draw, names = random.Random(seed), list(values)  # noqa: S311 - no secret
    return {
        (one, other): min(values[one], values[other]) * slow.get(frozenset((one, other)), 1.0)
        * (1 + draw.uniform(-NOISE, NOISE))
        for at, one in enumerate(names) for other in names[at + 1:]
    }


@given(st.integers(3, 12), SEEDS)
def test_a_bad_node_does_not_blame_its_partners(count: int, seed: int) -> None:
    values = {f"n{number}": 100.0 for number in range(count)} | {"n1": 50.0}
    nodes, single = outliers.of_pairs(pairs(values, seed, {}), 0.1)
    assert list(nodes) == ["n1"]
    assert single == {}


@given(st.integers(4, 12), SEEDS)
def test_a_bad_cable_between_two_nodes_names_the_pair(count: int, seed: int) -> None:
    values = {f"n{number}": 100.0 for number in range(count)}
    nodes, single = outliers.of_pairs(
        pairs(values, seed, {frozenset(("n0", "n2")): 0.5}), 0.1
    )
    assert nodes == {}
    assert list(single) == [("n0", "n2")]


@given(st.integers(2, 12), SEEDS)
def test_even_pairs_name_nobody(count: int, seed: int) -> None:
    values = {f"n{number}": 100.0 for number in range(count)}
    assert outliers.of_pairs(pairs(values, seed, {}), 0.1) == ({}, {})


def test_after_one_round_both_ends_of_a_slow_pair_are_suspected() -> None:
    found = {("a", "b"): 100.0, ("c", "d"): 101.0, ("e", "f"): 50.0, ("g", "h"): 99.0}
    assert outliers.of_pairs(found, 0.1) == ({}, {("e", "f"): pytest.approx(-0.5, abs=0.01)})
