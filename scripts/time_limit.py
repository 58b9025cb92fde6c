"""Skip tests that a slow machine cannot finish in time. Each conftest.py registers it.

A machine may be several times slower than usual, and CI ends a run without any result after a fixed
time. If `TEST_UNTIL` (seconds since the epoch) is set, two kinds of tests are skipped: those that
would start after this time, and those that exceed a limit of time while the machine is slow. Their
number is appended to the file `TEST_NOT_RUN`, so that `scripts/parts.sh` reports it. Without
`TEST_UNTIL`, all tests run, and a test that exceeds its limit fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

SLOW = 0.2
"""Processor time of `LOOP`, in seconds, above which a machine is slow; 0.05 to 0.1 is usual."""

LOOP = 1_000_000

NAME = "trimaran-time-limit"
"""Name of the plugin."""


def register(config: pytest.Config) -> None:
    """Register the plugin, unless another conftest.py has registered it already."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(TimeLimit(), NAME)


class TimeLimit:
    """Pytest plugin that skips tests that a slow machine cannot finish in time.

    Attributes:
        not_run: number of tests that the plugin skipped in this process.
    """

    def __init__(self) -> None:
        self.not_run = 0

    @pytest.hookimpl(tryfirst=True)  # before fixtures, which may build images
    def pytest_runtest_setup(self) -> None:
        """Skip the test if it would start after the time `TEST_UNTIL`."""
        if time.time() > float(os.environ.get("TEST_UNTIL", "inf")):
            self.not_run += 1
            pytest.skip("not run: the time of this part is over (scripts/time_limit.py)")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Skip the test if it exceeded a limit of time on a slow machine, instead of failing it."""
        report = yield
        exceeded = call.excinfo is not None and _is_timeout(call.excinfo.value)
        if report.failed and exceeded and "TEST_UNTIL" in os.environ and (took := _loop()) > SLOW:
            self.not_run += 1
            report.outcome = "skipped"
            report.longrepr = (
                str(item.path), 0, "not run to its end: it exceeded a limit of time on a slow"
                f" machine ({LOOP:,} additions took {took:.2f} s)")
        return report

    def pytest_sessionfinish(self) -> None:
        """Append the number of skipped tests of this process to the file `TEST_NOT_RUN`."""
        if self.not_run and (file := os.environ.get("TEST_NOT_RUN")):
            with Path(file).open("a", encoding="utf-8") as lines:
                lines.write(f"{self.not_run}\n")


def _is_timeout(error: BaseException) -> bool:
    """Return whether `error` is a timeout: of pytest-timeout, a subprocess or a browser."""
    named = type(error).__name__ in ("TimeoutError", "TimeoutExpired")
    return named or (isinstance(error, pytest.fail.Exception) and "Timeout" in str(error))


def _loop() -> float:
    """Return the processor time of a loop in seconds; other processes affect it little."""
    began = time.process_time()
    total = 0
    for number in range(LOOP):
        total += number
    return time.process_time() - began
