"""Run pytest in this interpreter and write the outcome and the seconds of each test to a file.

    python scripts/outcomes.py FILE WORDS OF PYTEST...

The environments of the apps have pytest, but nothing of the tool. Exit code: pytest's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest


class Outcomes:
    """Collects, as a plugin of pytest, what came of each test."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take down which tests there are."""
        for item in session.items:
            self.tests[item.nodeid] = {"test": item.nodeid, "outcome": "not run", "seconds": 0.0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase: one that does not pass is the outcome."""
        one = self.tests[report.nodeid]
        one["seconds"] = round(one["seconds"] + report.duration, 1)
        if one["outcome"] in ("not run", "passed"):
            one["outcome"] = report.outcome


def main(file: str, *words: str) -> int:
    """Run the tests that `words` name; write their outcomes to `file`; return pytest's code."""
    outcomes = Outcomes()
    code = pytest.main([*words], plugins=[outcomes])
    Path(file).write_text(json.dumps(list(outcomes.tests.values())), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
