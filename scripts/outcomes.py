"""Run pytest in this interpreter, and write outcome and seconds of each test to a file.

    python scripts/outcomes.py FILE PYTEST-ARGUMENTS...

The script imports nothing of the tool, which the environments of the apps lack. The exit code is
pytest's exit code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest


class Outcomes:
    """A plugin of pytest that collects the outcome of each test."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the collected tests."""
        for item in session.items:
            self.tests[item.nodeid] = {"test": item.nodeid, "outcome": "not run", "seconds": 0.0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of one phase of a test.

        The outcome of the test is the outcome of the first phase that does not pass, or `passed`.
        """
        one = self.tests[report.nodeid]
        one["seconds"] = round(one["seconds"] + report.duration, 1)
        if one["outcome"] in ("not run", "passed"):
            one["outcome"] = report.outcome


def main(file: str, *words: str) -> int:
    """Run pytest with `words`, write outcomes to `file`, and return pytest's exit code."""
    outcomes = Outcomes()
    code = pytest.main([*words], plugins=[outcomes])
    Path(file).write_text(json.dumps(list(outcomes.tests.values())), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
