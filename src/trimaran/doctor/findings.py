"""The result of a check of a machine: a finding with an ID, a level, a cause and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel

Level = Literal["ok", "warn", "fail"]


class Finding(BaseModel, frozen=True):
    """One result of a check.

    Attributes:
        id: documented ID, a key of `catalogue.FINDINGS`, such as `mpi-mismatch`.
        level: "warn": the run works, but slower or with less safety; "fail": the run cannot work.
        cause: one line that states what was found, with the measured values.
        remedy: one line that states what to do; "" if `level` is "ok".
    """

    id: str
    level: Level
    cause: str
    remedy: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    """Return the most severe level of `findings`; "ok" if there are none."""
    levels = {finding.level for finding in findings}
    order: tuple[Level, ...] = ("fail", "warn")
    return next((level for level in order if level in levels), "ok")
