"""Tests of records that cannot be decoded: bisection finds them, and each counts once."""

import pytest

from trainkit.data.bad import BadRecords, undecodable
from trainkit.exits import DataError


def test_records_of_other_ranks_and_of_the_checkpoint_count_once() -> None:
    bad = BadRecords(3, known=["a"])
    bad.tell = lambda text: pytest.fail(text)
    bad.add("a")
    bad.merge(["a", "b", "b", "c"])
    assert bad.found == ["a", "b", "c"]
    with pytest.raises(DataError, match="4 records"):
        bad.merge(["d"])


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {2, 3}, {0, 5, 6}, set(range(7))])
def test_the_bad_ones_of_a_batch_are_found(bad: set[int]) -> None:
    found = undecodable(range(7), lambda some: bool(bad & set(some)), lambda one: f"no. {one}")
    assert list(found) == [(number, f"no. {number}") for number in sorted(bad)]


def test_a_fault_that_is_no_records_own_is_none_of_them() -> None:
    assert list(undecodable(range(4), lambda some: True, lambda one: None)) == []
