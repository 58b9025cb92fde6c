"""A framework for tests, whose networks compute nothing, but advance a clock by fixed times."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import ClassVar

from trainkit import node_memory
from trainkit.exits import ArgumentError
from trainkit.zoo import measure
from trainkit.zoo.measure import Network, Step

FORWARD, TRAIN = 0.5, 2.0
"""Durations of a forward step and of a training step, in seconds."""
SPEED = {512: 1e12, 1024: 4e12, 2048: 3e12, 4096: 2e12}
"""Number of rows of a square matrix -> operations per second of the product of two of them."""


class Clock:
    """A clock that moves only when a step takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Return the time in seconds."""
        return self.now

    def step(self, *seconds: float) -> Step:
        """Return a step: call n takes the n-th of `seconds`; further calls take the last value."""
        left = list(seconds)

        def take() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return take


class BrokenError(Exception):
    """The exception that this framework raises if a step fails."""


class MadeUp:
    """A framework in which some networks fail as their names describe, for example `broken`."""

    FAILURES: ClassVar[tuple[type[Exception], ...]] = (BrokenError,)
    title = "made-up"
    kind = "cpu"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def product(self, order: int) -> Step:
        """Return a step that pretends to multiply two matrices with `order` rows and columns.

        It computes nothing, but advances the clock by the time that follows from the rate in
        `SPEED`.
        """
        return self.clock.step(2 * order**3 / SPEED[order])

    def network(self, name: str) -> Network:
        """Return a network of 5 million parameters and 3 GFLOP."""
        steps: dict[str, Callable[[], object]] = {
            "broken": _broken, "full": _full, "killed": _killed, "defective": _defective,
            "large": lambda: bytearray(1 << 40),
        }
        if name == "picky":
            raise ArgumentError("--size 8: picky needs 32 pixels", code="argument-invalid")
        step = steps.get(name) or self.clock.step(FORWARD)
        return Network(5_000_000, 224, 3_000_000_000, step, self.clock.step(TRAIN))

    def is_out_of_memory(self, error: Exception) -> bool:
        """Return whether `error` is the error that the network `full` raises."""
        return str(error) == "full"


def open_framework(settings: Clock | None) -> MadeUp:
    """Return the made-up framework, and make `trainkit.zoo` measure time with its made-up clock."""
    if settings is None:
        raise ArgumentError("no GPU", code="gpu-unavailable")
    print("noise of a library")
    vars(measure)["time"] = settings
    return MadeUp(settings)


def limited_allocation(free: int, size: int) -> str:
    """Allocate memory under `trainkit.zoo.measure.memory_limit`; return `granted` or `refused`.

    Args:
        free: free memory, in bytes, that the node appears to have.
        size: size of the allocation in bytes.
    """
    vars(node_memory)["free_bytes"] = lambda: free
    try:
        with measure.memory_limit("cpu"):
            bytearray(size)
    except MemoryError:
        bytearray(size)  # the limit has ended
        return "refused"
    return "granted"


def _broken() -> None:
    raise BrokenError("a step\n  failed")


def _full() -> None:
    raise BrokenError("full")


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _defective() -> None:
    raise KeyError("key")
