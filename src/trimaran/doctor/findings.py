"""The result of a check of a machine: a finding with an ID, a level, a cause and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

Level = Literal["ok", "warn", "fail"]
Group = Literal["machine", "engine", "ranks", "limits", "places", "network", "measure"]


class Finding(BaseModel, frozen=True):
    """One result of a check.

    Attributes:
        id: documented ID, a key of `checks.FINDINGS`, such as `host-mpi`. It names the checked
            property and does not depend on the level.
        level: "ok": no problem; "warn": the run works, but slower or with less safety; "fail": the
            run cannot work.
        cause: one line that states the observation, with the measured values.
        remedy: one line that states what to do; "" if `level` is "ok".
    """

    id: str
    level: Level
    cause: str
    remedy: str = ""


@dataclass(frozen=True)
class Explained:
    """The documentation of the findings with one ID.

    Attributes:
        group: the group of checks.
        level: the most severe level that a finding with this ID can have.
        meaning: one sentence: what is checked, and what happens to a run.
        remedy: one line that states what to do.
        tested: how the tests cause the finding: with a real fault, or with the recorded or made-up
            facts of another machine.
    """

    group: Group
    level: Level
    meaning: str
    remedy: str
    tested: str


def found(
    table: Mapping[str, Explained], identifier: str, level: Level, cause: str, remedy: str = ""
) -> Finding:
    """Return a finding with the ID `identifier`.

    If `remedy` is empty and the level is not "ok", the remedy for this ID in `table` is used.
    """
    if level != "ok":
        remedy = remedy or table[identifier].remedy
    return Finding(id=identifier, level=level, cause=cause, remedy=remedy)


def worst(findings: Iterable[Finding]) -> Level:
    """Return the most severe level of `findings`; "ok" if there are none."""
    levels = {finding.level for finding in findings}
    order: tuple[Level, ...] = ("fail", "warn")
    return next((level for level in order if level in levels), "ok")
