"""Tests of the sentences about a verdict, and of facts about the environment of an app."""

from __future__ import annotations

from typing import Any

from trimaran.report.report import facts, sentences
from trimaran.verdict.metrics import Outcome, Row, Verdict


def verdict(outcome: Outcome, *rows: dict[str, Any], reasons: list[str] | None = None) -> Verdict:
    made = [
        Row(**{"metric": "top1", "unit": "%", "at": "end", "measured": 90.0, "low": 89.0,
               "basis": "a paper", "outcome": outcome, "required": True, **row})
        for row in rows
    ]
    return Verdict(outcome=outcome, reasons=reasons or [], rows=made)


def test_a_pass_says_what_was_asked_for() -> None:
    assert sentences(verdict("PASS", {}, {"required": False, "metric": "other"})) == [
        "The run reached what the recipe expects.",
        "top1: 90.00 %, as accepted (at least 89.00 % is).",
    ]


def test_a_failure_names_what_failed_and_only_that() -> None:
    said = sentences(verdict("FAIL", {"measured": 80.0}, {"metric": "b", "outcome": "PASS"},
                             {"metric": "c", "measured": None, "low": None, "high": 3.0}))
    assert said[1:] == ["top1: 80.00 %, which is not accepted (at least 89.00 % is).",
                        "c: not reported, which is not accepted (at most 3.00 % is)."]


def test_no_reference_gives_the_reason() -> None:
    said = sentences(verdict("NO REFERENCE", {}, {"metric": "b", "outcome": "PASS"},
                             reasons=["this machine is not v100x8"]))
    assert said[1] == "The reason: this machine is not v100x8."
    assert said[2:] == ["b: 90.00 %, as accepted (at least 89.00 % is)."]


def test_facts_are_flat_and_short() -> None:
    found = {fact.name: fact.text for fact in facts({
        "packages": {"torch": "2.13.0", "dali": None}, "cpu": {"flags": ["avx2", "fma"]},
        "gpu": None, "mixed_precision": True, "deep": {"a": {"b": {"c": {"d": {"e": 1}}}}},
        "long": "x" * 1000,
    })}
    assert found["packages"] == "torch 2.13.0"
    assert found["cpu"] == "flags avx2, fma"
    assert found["mixed precision"] == "true"
    assert "gpu" not in found
    assert "deep" not in found
    assert len(found["long"]) == 301
    assert facts(None) == []
