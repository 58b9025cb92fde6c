"""The tests outside of `make test`: their selection, and the evidence of their last run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import long_tests
import outcomes
from trimaran import paths

EVIDENCE = sorted((paths.repository() / "site/results/tests").glob("*.json"))


class Report:
    nodeid = "test_x.py::test_a"

    def __init__(self, outcome: str) -> None:
        self.outcome, self.duration = outcome, 1.25


class Session:
    items = (Report(""),)


def outcome(*phases: str) -> object:
    found = outcomes.Outcomes()
    found.pytest_collection_finish(Session())  # type: ignore[arg-type]
    for phase in phases:
        found.pytest_runtest_logreport(Report(phase))  # type: ignore[arg-type]
    return found.tests["test_x.py::test_a"]


@pytest.mark.parametrize(
    ("phases", "wanted"),
    [((), "not run"), (("passed",) * 3, "passed"), (("passed", "failed", "passed"), "failed"),
     (("skipped", "passed"), "skipped"), (("passed", "passed", "failed"), "failed")],
)
def test_one_phase_that_does_not_pass_is_the_outcome(phases: tuple[str, ...], wanted: str) -> None:
    assert outcome(*phases) == {
        "test": "test_x.py::test_a", "outcome": wanted, "seconds": round(1.25 * len(phases), 1)
    }


def test_the_evidence_says_when_where_and_of_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence has command, revision, host, and the tests of all environments.

    An environment without a selected test is no failure, unless all environments have none.
    """
    one = {"test": "test_x.py::test_a", "outcome": "passed", "seconds": 1.0}
    found = iter([(0, [one]), (5, []), (1, [one])])
    monkeypatch.setattr(long_tests, "suites", lambda: [("python", [])] * 3)
    monkeypatch.setattr(long_tests, "tried", lambda *_: next(found))
    file = tmp_path / "x.json"
    assert long_tests.run(["--only", "toy or srun", "--json", str(file)]) == 1
    written = json.loads(file.read_text())
    assert written["command"] == "python scripts/long_tests.py --marker long --only 'toy or srun'"
    assert len(written["revision"].rstrip("+")) == 40
    assert written["host"]["cores"] > 0
    assert written["tests"] == [one, one]
    monkeypatch.setattr(long_tests, "tried", lambda *_: (5, []))
    assert long_tests.run(["--only", "nothing"]) == 5


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_what_was_committed_passed(path: Path) -> None:
    tests = json.loads(path.read_text())["tests"]
    assert {one["outcome"] for one in tests} == {"passed"}
