"""Run all checks of a node; each group of checks is a module."""

from __future__ import annotations

from types import ModuleType

from trimaran.doctor import (
    engine,
    limits,
    machine,
    network,
    nodes,
    places,
    qualification,
    ranks,
)
from trimaran.doctor.findings import Explained, Finding
from trimaran.doctor.situation import Situation

GROUPS: tuple[ModuleType, ...] = (machine, engine, ranks, limits, places, network)
"""Modules with a function `check` and a table `FINDINGS`, in the order of the output."""

CHEAP: tuple[ModuleType, ...] = (engine, ranks, places)
"""Groups of checks that `submit` runs before it queues a job; they take less than a second."""

CHEAP_PROBES = ("engine", "machine", "places", "ranks")
"""Names of the probe's files that collect the facts for the checks in `CHEAP`."""

FINDINGS: dict[str, Explained] = {
    **{identifier: known for group in GROUPS for identifier, known in group.FINDINGS.items()},
    **nodes.FINDINGS,
    **qualification.FINDINGS,
}
"""Documentation of all findings, by ID."""


ORDER = ("machine", "engine", "ranks", "limits", "places", "network", "measure")
"""Names of the groups in the order of the output."""


def check(situation: Situation, groups: tuple[ModuleType, ...] = GROUPS) -> list[Finding]:
    """Return the findings of all `groups` of checks for one node."""
    return [finding for group in groups for finding in group.check(situation)]


def group_of(finding: Finding) -> str:
    """Return the group of a finding.

    Findings about an engine other than Apptainer have no row in `FINDINGS`; their group is
    "machine".
    """
    known = FINDINGS.get(finding.id)
    return known.group if known is not None else "machine"
