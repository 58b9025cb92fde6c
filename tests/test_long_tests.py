"""The tests that are no part of `make test`: which they are, and what came of them last."""

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


def test_the_evidence_says_when_where_and_of_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_tests, "revision", lambda: "5" * 40)
    found = json.loads(long_tests.evidence([], "faults"))
    assert found["command"] == "python scripts/long_tests.py --marker faults"
    assert found["revision"] == "5" * 40
    some = json.loads(long_tests.evidence([], "long", "toy or srun"))
    assert some["command"] == "python scripts/long_tests.py --marker long --only 'toy or srun'"
    assert found["host"]["cores"] > 0


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_what_was_committed_passed(path: Path) -> None:
    tests = json.loads(path.read_text())["tests"]
    assert {one["outcome"] for one in tests} == {"passed"}
