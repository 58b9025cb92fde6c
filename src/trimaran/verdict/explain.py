"""Explain a verdict in sentences for readers who do not know the terms of Trimaran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimaran.verdict.run_verdict import Row, Verdict

_DEPTH = 3
_LONGEST = 300


def sentences(verdict: Verdict) -> list[str]:
    """Return sentences about the outcome and about each metric that decides it."""
    judged = [row for row in verdict.rows if row.required]
    if verdict.outcome == "PASS":
        return ["The run reached what the recipe expects.", *map(_judged, judged)]
    if verdict.outcome == "FAIL":
        failed = [row for row in judged if row.outcome == "FAIL"]
        return ["The run came to its end, but did not reach what the recipe expects.",
                *map(_judged, failed)]
    lines = ["No reference is valid for this run, so its result can be neither right nor wrong."]
    lines += [f"The reason: {reason}." for reason in verdict.reasons]
    return [*lines, *(_judged(row) for row in judged if row.outcome == "PASS")]


def _judged(row: Row) -> str:
    inside = {"PASS": "as accepted", "FAIL": "which is not accepted"}.get(row.outcome, "not judged")
    return f"{row.metric}: {row.measured_text}, {inside} ({_range(row)})."


def _range(row: Row) -> str:
    if row.low is None and row.high is None:
        return "anything is"
    words = row.accepted_text.replace(">=", "at least").replace("<=", "at most")
    return f"{words} is"


class Fact(NamedTuple):
    """A fact about the environment of an app, such as `torch 2.13.0` with the name `packages`."""

    name: str
    text: str


def facts(environment: Mapping[str, object] | None) -> list[Fact]:
    """Return the facts in the `environment.json` of an app, which has no fixed form."""
    return [
        Fact(str(name).replace("_", " "), text) for name, value in (environment or {}).items()
        if name != "argv" and (text := _flat(value, 0))  # reports contain the complete command
    ]


def _flat(value: object, depth: int) -> str:
    if value is None or depth > _DEPTH:
        return ""
    if isinstance(value, dict):
        parts = [(key, _flat(below, depth + 1)) for key, below in value.items()]
        text = ", ".join(f"{key} {below}" for key, below in parts if below)
    elif isinstance(value, list):
        text = ", ".join(filter(None, (_flat(below, depth + 1) for below in value)))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
