"""Run the tests marked `long`, or `faults`, and write what came of each as evidence.

They take minutes each and are no part of `make test`: the last result is committed instead.

    python scripts/long_tests.py
    python scripts/long_tests.py --marker faults  # what can happen to a run on a cluster
    python scripts/long_tests.py --json site/results/tests/DATE-HOST.json
    python scripts/long_tests.py --only "launchers or toy"
    python scripts/long_tests.py --list

Exit codes: pytest's (0 all passed, 1 a test failed).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from trimaran.hostfacts import host_facts

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "tests/integration"


class Outcomes:
    """Collects, as a plugin of pytest, the outcome and the seconds of each test."""

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


def run(words: Sequence[str]) -> int:
    """Do what the words ask for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the evidence")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--marker", choices=("long", "faults"), default="long",
                        help="of the tests to run (default: %(default)s)")
    parser.add_argument("--only", metavar="WORDS", help="of these, those that pytest's -k chooses")
    asked = parser.parse_args(words)
    outcomes = Outcomes()
    options = ["--collect-only", "-q"] if asked.list else ["-v"]
    chosen = ["-k", asked.only] if asked.only else []
    which = [str(ROOT / FOLDER), "-m", asked.marker, *chosen]
    code = pytest.main([*which, *options], plugins=[outcomes])
    if asked.json and not asked.list:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(evidence(outcomes, asked.marker, asked.only), encoding="utf-8")
    return int(code)


def evidence(outcomes: Outcomes, marker: str, only: str | None = None) -> str:
    """Return the evidence of a run as JSON; where it is written to is no part of its command."""
    host = host_facts().model_dump(include={"processor", "cores", "memory_gib", "kernel", "os"})
    document = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M +0000"),
        "command": shlex.join(["python", "scripts/long_tests.py", "--marker", marker,
                               *(["--only", only] if only else [])]),
        "revision": revision(),
        "host": host,
        "tests": list(outcomes.tests.values()),
    }
    return json.dumps(document, indent=2) + "\n"


def revision() -> str:
    """Return the commit of the tree, with a + if it has other content."""
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True  # noqa: S607
        ).stdout.strip()

    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
