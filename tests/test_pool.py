"""Processes that work together: all results, all progress, and an end if one of them fails."""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

import pytest

from refusals import refused
from trimaran import pool
from trimaran.errors import RunError
from trimaran.reporting import Advance


def double(number: int, advance: Advance) -> int:
    advance(number)
    return 2 * number


def fail(number: int, advance: Advance) -> NoReturn:
    if number == 0:
        raise RunError("a fault", hint="a way out")
    while True:  # until it is given up
        advance(1)
        time.sleep(0.01)


def die(number: int, advance: Advance) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_all_results_and_all_progress_come(workers: int) -> None:
    told: list[float] = []
    results = pool.run(double, list(range(10)), workers, told.append)
    assert sorted(results) == [2 * number for number in range(10)]
    assert sum(told) == 45


def test_no_tasks_give_no_results() -> None:
    assert list(pool.run(double, [], 4, lambda amount: None)) == []


def test_a_fault_ends_all_and_keeps_its_hint() -> None:
    with pytest.raises(RunError, match="a fault") as caught:
        list(pool.run(fail, [1, 0, 1], 2, lambda amount: None))
    assert caught.value.hint == "a way out"


def test_a_killed_process_is_said() -> None:
    with refused("worker-killed"):
        list(pool.run(die, [1, 2], 2, lambda amount: None))
