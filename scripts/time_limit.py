"""Skip the tests that a part of `make test` does not reach in its time. Each conftest.py has this.

A machine may be several times slower than usual, and CI ends a run without any result after a fixed
time. Tests that would start after the time `TEST_UNTIL` (seconds since the epoch) are skipped, and
their number is appended to the file `TEST_NOT_RUN`, so that `scripts/parts.sh` reports it. Without
the first variable, all tests run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

_not_run: list[str] = []


@pytest.hookimpl(tryfirst=True)  # before fixtures, which may build images
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if its part has no time left."""
    if time.time() > float(os.environ.get("TEST_UNTIL", "inf")):
        _not_run.append(item.nodeid)
        pytest.skip("not run: the time of this part is over (scripts/time_limit.py)")


def pytest_sessionfinish() -> None:
    """Write the number of tests that were not run; with several processes, each writes its own."""
    if _not_run and (file := os.environ.get("TEST_NOT_RUN")):
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(f"{len(_not_run)}\n")
