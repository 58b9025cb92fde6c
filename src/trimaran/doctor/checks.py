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
"""The modules with the checks of a node, in the order of the output.

Each module has a function `check` and a dictionary `FINDINGS`.
"""

CHEAP: tuple[ModuleType, ...] = (engine, ranks, places)
"""Modules of checks that `submit` runs before it queues a job; they take less than a second."""

CHEAP_PROBES = ("engine", "machine", "places", "ranks")
"""Names of the files of the shell probe that collect the facts for the checks in `CHEAP`."""

FINDINGS: dict[str, Explained] = {
    **{identifier: known for group in GROUPS for identifier, known in group.FINDINGS.items()},
    **nodes.FINDINGS,
    **qualification.FINDINGS,
}
"""A dictionary that maps the ID of each possible finding to its documentation."""


ORDER = ("machine", "engine", "ranks", "limits", "places", "network", "measure")
"""Names of the groups of findings in the order of the output."""


def check(situation: Situation, groups: tuple[ModuleType, ...] = GROUPS) -> list[Finding]:
    """Run the checks in the modules `groups` for one node, and return their findings."""
    return [finding for group in groups for finding in group.check(situation)]


def group_of(finding: Finding) -> str:
    """Return the name of the group to which a finding belongs.

    `FINDINGS` has no entry for findings about engines other than Apptainer; their group is
    "machine".
    """
    known = FINDINGS.get(finding.id)
    return known.group if known is not None else "machine"
