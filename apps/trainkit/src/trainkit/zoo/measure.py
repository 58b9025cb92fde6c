"""Measure the rates of networks in images per second, and the ceiling of the machine.

The ceiling is the speed of the fastest matrix product, with which the rates are compared. An app
provides the framework: how to build a network, its forward step and its training step, and a
product of matrices. This module computes the results from the times, in the same way for each
framework. The ceiling and each network are measured in separate processes (`trainkit.zoo.run`).
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from trainkit import node_memory
from trainkit.exits import AppError

TRAINING = 3
"""Ratio of the operations of a training step to the operations of a forward step. For each product
of the forward step, the backward pass computes two products of the same size: the gradients of the
input and of the weights (Kaplan et al., arXiv:2001.08361, section 2.1). The calculation ignores
that the first layer needs no gradient of its input."""
ORDERS = {"cpu": (512, 1024, 2048, 4096), "gpu": (4096, 8192, 16384)}
"""Kind of device -> numbers of rows of the square matrices whose products are measured."""
CEILING_SECONDS = 1.0
"""Minimum time, in seconds, for which the product of matrices of each size is repeated."""
CEILING_REPETITIONS = 3
"""Minimum number of timed products of two square matrices, for each size of the matrices."""
STATUS = Path("/proc/self/status")
"""File with the field VmData: the memory of this process that RLIMIT_DATA limits; see proc(5)."""
OUT_OF_MEMORY = "memory-insufficient"
SHOWN = 200
"""Maximum number of characters in the reason why a network was not measured."""

Step = Callable[[], object]
"""Type of a function that runs one step, and returns when the device has finished it."""


@dataclass(frozen=True)
class Network:
    """A network that is ready to be measured.

    Attributes:
        parameters: number of trained parameters.
        size: side of the images, in pixels.
        flops: operations per image in the matrix products and convolutions of a forward step; a
            multiplication and an addition are two operations.
        forward: function that runs one step of inference with a batch.
        train: function that runs one training step with a batch: forward pass, loss, backward pass,
            update by SGD.
    """

    parameters: int
    size: int
    flops: int
    forward: Step = field(repr=False)
    train: Step = field(repr=False)


class Framework(Protocol):
    """The interface that an app implements: networks and matrix products on one device.

    Attributes:
        FAILURES: exceptions that the framework raises if a step fails.
        title: name and version of the framework, and the device, for the heading.
        kind: kind of the device, "cpu" or "gpu".
    """

    FAILURES: ClassVar[tuple[type[Exception], ...]]
    title: str
    kind: str

    def product(self, order: int) -> Step:
        """Return a function that multiplies two matrices of this order in the chosen precision."""

    def network(self, name: str) -> Network:
        """Build the network `name`.

        Raises:
            AppError: the network does not accept images of the requested size.
        """

    def is_out_of_memory(self, error: Exception) -> bool:
        """Return whether `error`, one of `FAILURES`, was raised because of too little memory."""


@dataclass(frozen=True)
class Effort:
    """The extent of a benchmark: images per step, measured steps, and warm-up steps."""

    batch: int
    steps: int
    warmup: int


@dataclass(frozen=True)
class Times:
    """The properties of a network, as in `Network`, and the times of its steps in seconds."""

    size: int
    parameters: int
    flops: int
    forward: list[float]
    train: list[float]


@dataclass(frozen=True)
class Ceiling:
    """The fastest product of square matrices: its operations per second, and the matrix order."""

    flops_per_second: float
    order: int


@dataclass(frozen=True)
class Rate:
    """Images per second of one kind of step.

    Attributes:
        images_per_second: rate at the median of the step times.
        slow: rate, in images per second, at the upper quartile of the step times.
        fast: rate, in images per second, at the lower quartile of the step times.
        share: floating-point operations per second, as a fraction of the speed of the fastest
            matrix product that was measured on the device.
    """

    images_per_second: float
    slow: float
    fast: float
    share: float


@dataclass(frozen=True)
class Row:
    """The result of one network: its properties, as in `Network`, and its rates."""

    name: str
    size: int
    parameters: int
    flops: int
    forward: Rate
    training: Rate


@dataclass(frozen=True)
class Failure:
    """Name of a network that was not measured, the reason, and the error code of the reason."""

    name: str
    reason: str
    code: str


def ceiling(opened: Callable[[], Framework]) -> tuple[Ceiling, str]:
    """Measure the fastest matrix product (the ceiling); return it and the framework's title."""
    framework = opened()
    return measure_ceiling(framework), framework.title


def attempt(opened: Callable[[], Framework], name: str, effort: Effort) -> Times | Failure:
    """Measure one network; return a `Failure` if the network cannot be measured."""
    framework = opened()
    try:
        with memory_limit(framework.kind):
            network = framework.network(name)
            return Times(
                network.size, network.parameters, network.flops,
                step_seconds(network.forward, effort), step_seconds(network.train, effort),
            )
    except AppError as error:
        return Failure(name, str(error), error.code)
    except MemoryError:
        return Failure(name, "out of memory", OUT_OF_MEMORY)
    except framework.FAILURES as error:
        if framework.is_out_of_memory(error):
            return Failure(name, "out of memory", OUT_OF_MEMORY)
        text = " ".join(str(error).split()) or type(error).__name__
        return Failure(name, text[:SHOWN], "app-failed")


def row(name: str, times: Times, batch: int, found: Ceiling) -> Row:
    """Return the rates of a network from the times of its steps with `batch` images."""
    return Row(
        name, times.size, times.parameters, times.flops,
        rate(times.forward, batch, times.flops, found),
        rate(times.train, batch, TRAINING * times.flops, found),
    )


def step_seconds(step: Step, effort: Effort) -> list[float]:
    """Return the times of the measured steps in seconds, without the warm-up steps."""
    for _ in range(effort.warmup):
        step()
    return [_seconds(step) for _ in range(effort.steps)]


def rate(seconds: Sequence[float], batch: int, flops: int, ceiling: Ceiling) -> Rate:
    """Return the images per second of steps of `batch` images.

    The result also has the operations per second as a share of `ceiling`.

    Args:
        seconds: times of the steps in seconds.
        batch: images per step.
        flops: operations per image.
        ceiling: the speed of the fastest matrix product on the device.
    """
    low, middle, high = quartiles(seconds)
    median = batch / middle
    return Rate(median, batch / high, batch / low, median * flops / ceiling.flops_per_second)


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile of `seconds`."""
    if len(seconds) == 1:
        return seconds[0], seconds[0], seconds[0]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, middle, high


def measure_ceiling(framework: Framework) -> Ceiling:
    """Return the speed of the fastest product of two square matrices, over several orders.

    A product takes 2 n^3 operations: n^2 results of n multiplications and n additions each (Golub
    and Van Loan, "Matrix Computations", section 1.1.11). Libraries compute most convolutions as
    matrix products, and large square products are the fastest ones.
    """
    found = []
    for order in ORDERS[framework.kind]:
        step = framework.product(order)
        step()
        seconds: list[float] = []
        while len(seconds) < CEILING_REPETITIONS or sum(seconds) < CEILING_SECONDS:
            seconds.append(_seconds(step))
        found.append(Ceiling(2 * order**3 / statistics.median(seconds), order))
    return max(found, key=lambda one: one.flops_per_second)


@contextlib.contextmanager
def memory_limit(kind: str) -> Iterator[None]:
    """Limit the memory of this process to the node's free memory if the device is the CPU.

    Without a limit, Linux grants more memory than is available, and kills a process that uses it.
    With the limit, an allocation that is too large fails, and the framework raises an error or
    crashes. See RLIMIT_DATA in setrlimit(2).
    """
    if kind != "cpu":
        yield
        return
    before = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = node_memory.field_bytes(STATUS, "VmData") + node_memory.free_bytes()
    others = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *others]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _seconds(step: Step) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
