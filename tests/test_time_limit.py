"""`make test` on a slow machine: tests that start after the time limit are skipped and counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimaran import paths

SCRIPTS = paths.repository() / "scripts"
CONFTEST = "import time_limit\ndef pytest_configure(config): time_limit.register(config)\n"
MAKEFILE = """\
passing:
	@echo $@ $$TEST_UNTIL >>calls
failing:
	@echo $@ $$TEST_UNTIL >>calls; exit 1
short:
	@printf '2\\n3\\n' >>$$TEST_NOT_RUN
"""


def run_pytest(place: Path, seconds: int | None) -> subprocess.CompletedProcess[str]:
    """Run the tests of `place`; none starts after `seconds` seconds (None: no time limit)."""
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "TEST_NOT_RUN": str(place / "n")}
    environment.pop("TEST_UNTIL", None)
    if seconds is not None:
        environment["TEST_UNTIL"] = str(time.time() + seconds)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
                          env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("seconds", "skipped"), [(None, 0), (1000, 0), (-1, 2)])
def test_what_begins_too_late_is_skipped_before_its_fixtures(
    own_place: Path, seconds: int | None, skipped: int
) -> None:
    (own_place / "conftest.py").write_text(CONFTEST)
    (own_place / "test_two.py").write_text(
        "import pytest\n@pytest.fixture\ndef made(): open('made', 'w').close()\n"
        "def test_one(made): pass\ndef test_two(): pass\n")
    done = run_pytest(own_place, seconds)
    assert done.returncode == 0, done.stdout
    assert f"{skipped} skipped" in done.stdout if skipped else "2 passed" in done.stdout
    assert (own_place / "made").exists() == (not skipped)
    assert (own_place / "n").exists() == bool(skipped)
    if skipped:
        assert (own_place / "n").read_text() == "2\n"


@pytest.mark.parametrize(
    ("slow", "seconds", "failed"), [(0.0, 1000, 1), (0.0, None, 4), (1000.0, 1000, 4)],
)
def test_what_exceeds_its_limit_on_a_slow_machine_counts_as_not_run(
    own_place: Path, slow: float, seconds: int | None, failed: int
) -> None:
    (own_place / "conftest.py").write_text(f"{CONFTEST}time_limit.SLOW = {slow}\n")
    (own_place / "test_limits.py").write_text("""\
import subprocess
import time
import pytest

@pytest.mark.timeout(0.2)
def test_of_pytest(): time.sleep(10)

@pytest.fixture
def slow(): subprocess.run(["sleep", "10"], timeout=0.1)
def test_of_a_fixture(slow): pass

def test_of_a_wait(): raise TimeoutError("the page did not load")
def test_wrong(): assert "Timeout" == "2"
""")
    done = run_pytest(own_place, seconds)
    assert f"{failed} failed" in done.stdout.replace("3 failed, 1 error", "4 failed"), done.stdout
    counted = own_place / "n"
    assert (counted.read_text() if counted.exists() else "") == ("" if failed == 4 else "3\n")


def parts(place: Path, *words: str, until: float | None = None) -> tuple[int, str, dict[str, int]]:
    """Run make targets by `parts.sh`; return its exit status and output, and target -> deadline.

    A target starts no test after its deadline. `until` is the deadline of all targets
    together. All deadlines are in seconds from the call of this function; without `until`,
    there are none.
    """
    (place / "Makefile").write_text(MAKEFILE)
    environment = {name: text for name, text in os.environ.items() if name != "TEST_UNTIL"}
    now = int(time.time())
    if until is not None:
        environment["TEST_UNTIL"] = str(int(now + until))
    done = subprocess.run(["sh", str(SCRIPTS / "parts.sh"), "make", *words], env=environment,
                          capture_output=True, text=True, check=False)
    calls = place / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    found = {line.split()[0]: int(line.split()[1]) - now for line in lines if " " in line.strip()}
    return done.returncode, done.stdout, found


def test_parts_share_the_time_and_a_later_part_gets_what_is_left(own_place: Path) -> None:
    code, _, found = parts(own_place, "failing:1", "passing:3", until=400)
    assert code == 1
    assert 95 <= found["failing"] <= 105
    assert 395 <= found["passing"] <= 405


def test_tests_that_were_not_run_are_counted(own_place: Path) -> None:
    code, said, found = parts(own_place, "passing:1", "short:1")
    assert (code, found) == (0, {})
    assert "5 tests not run" in said
    assert "NOT RUN: 5 tests" in said
