"""Measure a list of networks, each in a process of its own.

Therefore each measurement begins with free memory. A crash, for example in a library that does not
check its allocations, ends only the measurement of one network.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, TypeVar

from trainkit.exits import AppError, ArgumentError
from trainkit.streams import say
from trainkit.zoo import measure
from trainkit.zoo.measure import Ceiling, Effort, Failure, Framework, Row, Times

Result = TypeVar("Result")


@dataclass(frozen=True)
class Opener:
    """Picklable callable that returns the app's implementation of the interface `Framework`.

    Only child processes call it.

    Attributes:
        module: module of the app with a function `open_framework(settings)`.
        settings: options of the benchmark.
    """

    module: str
    settings: Any

    def __call__(self) -> Framework:
        """Return the app's `Framework`, for the device and precision that `settings` select."""
        framework: Framework = importlib.import_module(self.module).open_framework(self.settings)
        return framework


MEMORY_SIGNALS = (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
"""Signals that end a process whose allocation failed."""


class ChildError(ArgumentError):
    """Error for a child process that ended without a result; the message describes its end."""

    def __init__(self, exit_code: int) -> None:
        short = -exit_code in MEMORY_SIGNALS
        if exit_code < 0:
            text = f"{signal.Signals(-exit_code).name} ended the measuring process"
            text += ", probably because memory was short" if short else ""
        else:
            text = "the measuring process ended with an error; its traceback is above"
        super().__init__(text, code=measure.OUT_OF_MEMORY if short else "app-failed")


def run(
    opened: Callable[[], Framework], names: Sequence[str], effort: Effort,
    tell: Callable[[str], object],
) -> tuple[str, Ceiling, list[Row | Failure]]:
    """Measure all networks, one after the other, and the ceiling before and after them.

    The ceiling is the rate of the fastest matrix product. The higher of the two values is
    used, because other work on the machine can only lower it.

    Args:
        opened: function that returns the framework; child processes call it.
        names: names of the networks.
        effort: images per step, and number of steps.
        tell: function that shows a line of progress.

    Returns:
        The title of the framework, the ceiling, and the result of each network.

    Raises:
        AppError: the framework lacks the device, or the ceiling could not be measured.
    """
    before, title = _ceiling(opened, tell)
    found = []
    for number, name in enumerate(names, 1):
        tell(f"{number}/{len(names)}  {name}")
        found.append(_times(opened, name, effort))
        tell(f"     {_summary(found[-1], effort.batch)}")
    after, _ = _ceiling(opened, tell)
    ceiling = max(before, after, key=lambda one: one.flops_per_second)
    return title, ceiling, [
        times if isinstance(times, Failure) else measure.row(name, times, effort.batch, ceiling)
        for name, times in zip(names, found, strict=True)
    ]


def _ceiling(
    opened: Callable[[], Framework], tell: Callable[[str], object]
) -> tuple[Ceiling, str]:
    tell("measuring the ceiling")
    ceiling, title = separately(measure.ceiling, opened)
    tell(f"     {ceiling.flops_per_second / 1e12:.3g} TFLOP/s")
    return ceiling, title


def separately(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of `work(*arguments)`, which a new process computes.

    The output of the process is shown only if the process ends with a traceback.

    Raises:
        AppError: `work` raised this error.
        ChildError: the process ended without a result.
    """
    context = multiprocessing.get_context("spawn")  # a copy of this process may lack its threads
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        child = context.Process(
            target=_child, args=(sender, log.name, work, *arguments), daemon=True
        )
        child.start()
        sender.close()  # so that `recv` fails when the child ends
        try:
            result: Result | AppError = receiver.recv()
        except EOFError:
            child.join()
            if child.exitcode == 1:
                say(sys.stderr, log.read())
            raise ChildError(child.exitcode or 0) from None
        finally:
            child.kill()  # after Ctrl-C, it would go on
            child.join()
    if isinstance(result, AppError):
        raise result
    return result


def _times(opened: Callable[[], Framework], name: str, effort: Effort) -> Times | Failure:
    try:
        return separately(measure.attempt, opened, name, effort)
    except ChildError as error:
        return Failure(name, str(error), error.code)


def _summary(found: Times | Failure, batch: int) -> str:
    """Return the result of a network as one short line of progress."""
    if isinstance(found, Failure):
        return f"not measured: {found.reason}"
    forward, training = (batch / median(one) for one in (found.forward, found.train))
    return f"forward {forward:.4g} img/s, training {training:.4g} img/s"


def _child(
    sender: Connection, log: str, work: Callable[..., object], *arguments: object
) -> None:
    """Send the result of `work(*arguments)` to the parent process; redirect output to `log`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent process reports Ctrl-C
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    try:
        result = work(*arguments)
    except AppError as error:
        result = error
    sender.send(result)
