"""Tests of the sizes, the bus factors and the exact results of the operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from collectives import patterns, settings
from collectives.library import Library
from collectives.measure import Measurement
from collectives.operations import OPERATIONS, WINDOW, Operation
from collectives.settings import MeasureSettings
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused

MIB = 1 << 20


@pytest.mark.parametrize(("name", "two", "eight"), [
    ("all-reduce", 1.0, 1.75), ("broadcast", 1, 1), ("reduce", 1, 1), ("all-gather", 0.5, 0.875),
    ("reduce-scatter", 0.5, 0.875), ("all-to-all", 0.5, 0.875), ("latency", 1, 1),
    ("bandwidth", 1, 1),
])
def test_the_bus_factors_are_those_of_nccl_tests(name: str, two: float, eight: float) -> None:
    operation = OPERATIONS[name]
    assert (operation.bus(2), operation.bus(8)) == (two, eight)
    assert operation.bus_bandwidth(10**9, 0.5, 8) == pytest.approx(2 * eight)


def test_both_directions_count() -> None:
    assert OPERATIONS["bidirectional-bandwidth"].algorithm_bandwidth(10**9, 1.0) == 2


@pytest.mark.parametrize("name", ["all-gather", "reduce-scatter", "all-to-all"])
def test_the_larger_buffer_of_a_rank_counts(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation.elements(16 * MIB, 4, 8) * 4 * 8 == 16 * MIB
    assert operation.elements(4, 4, 8) == 1  # a block has at least one element
    assert OPERATIONS["all-reduce"].elements(16 * MIB, 4, 8) * 4 == 16 * MIB


def test_the_slowest_rank_decides_and_rank_0_measures_messages() -> None:
    times = [1.0, 4.0, 1.0]
    assert OPERATIONS["all-reduce"].seconds(times, 4) == 4
    assert OPERATIONS["all-reduce"].mean_seconds(times, 4) == 2
    assert OPERATIONS["latency"].seconds(times, 4) == 0.5  # half of the round trip
    assert OPERATIONS["bandwidth"].seconds(times, 4) == 1 / WINDOW
    assert OPERATIONS["bandwidth"].parts(16 * MIB) == 4
    assert OPERATIONS["bandwidth"].parts(1 << 33) == 2


def test_only_the_ends_exchange_messages() -> None:
    assert [OPERATIONS["latency"].takes_part(rank, 3) for rank in range(3)] == [True, False, True]
    assert all(OPERATIONS["reduce"].takes_part(rank, 3) for rank in range(3))


def test_the_options_name_all_operations() -> None:
    assert tuple(OPERATIONS) == settings.OPERATIONS


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_what_arrives_is_what_was_sent(ranks: int) -> None:
    """Perform each operation in Python on the sent tiles; compare the result with `expected`."""
    exact = 256

    def sent(name: str, rank: int) -> list[patterns.Tile]:
        return list(OPERATIONS[name].sent(rank, ranks, exact))

    for rank in range(ranks):
        def expected(name: str, rank: int = rank) -> list[list[int]]:
            return [list(tile) for tile in OPERATIONS[name].expected(rank, ranks, exact)]

        every = range(ranks)
        whole = [list(sum(sent("all-reduce", other)[0] for other in every))]
        assert expected("all-reduce") == whole
        assert expected("reduce") == (whole if rank == 0 else [])
        assert expected("broadcast") == [list(sent("broadcast", 0)[0])]
        assert expected("all-gather") == [list(sent("all-gather", other)[0]) for other in every]
        assert expected("all-to-all") == [list(sent("all-to-all", other)[rank]) for other in every]
        assert expected("reduce-scatter") == [
            list(sum(sent("reduce-scatter", other)[rank] for other in every))
        ]
    last = OPERATIONS["latency"].expected(ranks - 1, ranks, exact)
    assert list(last[0]) == list(sent("latency", 0)[0])
    assert list(OPERATIONS["latency"].expected(0, ranks, exact)[0]) == list(
        sent("latency", ranks - 1)[0]
    )


class MiddleRank(Strategy):
    """A stand-in for the strategy of rank 1 of three ranks, without communication.

    `gather` returns the next value of `others` as the value of rank 0, or the value of rank 1
    if `others` has no more values. The value of rank 2 always equals that of rank 1.
    """

    def __init__(self, *others: str | None) -> None:
        super().__init__(Ranks("torchrun", 1, 3, 1, 3))
        self.others = iter(others)

    def gather(self, value: Any) -> list[Any]:
        return [next(self.others, value), value, value]


class Willing(Library):
    """A library that accepts every operation on this rank."""

    def lacks(self, operation: Operation) -> str | None:
        return None

    def call(self, operation: Operation, send: Any, receive: Any) -> Any:
        raise AssertionError

    def facts(self) -> dict[str, Any]:
        raise AssertionError


def test_what_another_rank_refuses_is_left_out_here_too(tmp_path: Path) -> None:
    def measurement(*named: str) -> Measurement:
        options = MeasureSettings(out=tmp_path, operations=named or None)
        strategy = MiddleRank(*[None] * 6 if not named else (), "no float16")
        library = Willing(strategy, torch.device("cpu"), torch.float16, "gloo")
        return Measurement(options, library)

    every = measurement()
    assert [one.name for one in every.operations()] == [
        name for name in OPERATIONS if name != "latency"
    ]
    assert every.left_out == {"latency": "no float16"}
    with refused(ArgumentError, "operation-missing", "latency", "no float16"):
        measurement("latency").operations()
