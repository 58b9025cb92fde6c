"""Run the tests marked `long` or `faults`, and write their outcomes as evidence.

Each test takes minutes, so `make test` omits them; their last results are committed instead.
Tests of an app run in the environment of its framework. All other tests use real container engines.

    python scripts/long_tests.py
    python scripts/long_tests.py --marker faults  # inject faults into runs
    python scripts/long_tests.py --json site/results/tests/DATE-HOST.json
    python scripts/long_tests.py --only "launchers or toy"
    python scripts/long_tests.py --list

Exit codes: pytest's (0 all passed, 1 a test failed).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import app_tests
from suite_evidence import evidence

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "tests/integration"


def run(words: Sequence[str]) -> int:
    """Run the command line `words`; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the evidence")
    parser.add_argument("--list", action="store_true", help="only list the tests")
    parser.add_argument("--marker", choices=("long", "faults"), default="long",
                        help="marker of the tests to run (default: %(default)s)")
    parser.add_argument("--only", metavar="WORDS", help="run only tests that pytest's -k selects")
    asked = parser.parse_args(words)
    options = ["--collect-only", "-q"] if asked.list else ["-v"]
    chosen = ["-k", asked.only] if asked.only else []
    tests: list[dict[str, Any]] = []
    codes = []
    for python, suite in suites():
        code, found = tried(python, [*suite, "-m", asked.marker, *chosen, *options])
        codes.append(code)
        tests += found
    if asked.json and not asked.list:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        # The recorded command does not contain the output file.
        command = ["--marker", asked.marker, *(["--only", asked.only] if asked.only else [])]
        text = evidence(ROOT, "long_tests.py", command, tests=tests)
        asked.json.write_text(text, encoding="utf-8")
    return max((code for code in codes if code != app_tests.NO_TESTS), default=app_tests.NO_TESTS)


def suites() -> Iterator[tuple[str, list[str]]]:
    """Yield (interpreter, pytest's arguments) for the tests of the tool and of each framework."""
    yield sys.executable, [FOLDER]
    for framework in app_tests.frameworks(ROOT):
        app_tests.setup(framework)
        for words in app_tests.suites(framework):
            yield str(framework.python), words


def tried(python: str, words: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run pytest with the interpreter `python`; return its exit code and each test's outcome."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcomes.json")
        done = subprocess.run(
            [python, str(ROOT / "scripts/outcomes.py"), str(file), *words], cwd=ROOT, check=False
        )
        return done.returncode, json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
