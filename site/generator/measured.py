"""Compute the throughput of published runs by recipe, machine, day and framework version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from generator import recipe_status
from generator.evidence import Piece
from generator.recipe_status import RecipeStatus
from trimaran.report.run_evidence import JudgedRow, RunEvidence

METRIC = "throughput"


@dataclass(frozen=True)
class Measured:
    """The throughput of an unchanged recipe on one machine, one day and one framework version.

    Attributes:
        recipe: name of the recipe; for a run of a scaling series, with its size: `app/recipe@4`.
        devices: number of GPUs if a rank has several GPUs, else number of ranks.
        machine: short description of the machine.
        device: kind of the devices, without their number; scaling is plotted for each kind.
        framework: the framework of the app.
        version: version of the framework; None: the app has not recorded it.
        day: day of the runs.
        rates: throughput of each run, in `unit`.
        unit: unit of the rates.
        digits: number of decimal places, from the app card.
        on_target: whether the throughput was judged, that is, the machine is the recipe's target.
        files: path of the evidence of each run.
    """

    recipe: str
    devices: int
    machine: str
    device: str
    framework: str
    version: str | None
    day: dt.date
    rates: Sequence[float]
    unit: str
    digits: int
    on_target: bool
    files: Sequence[str]

    @property
    def rate(self) -> float:
        """The median throughput of the runs, in `unit`."""
        return median(self.rates)

    def shown(self, rate: float) -> str:
        """Return a rate with the decimal places of the app card, without its unit."""
        return recipe_status.show(rate, "", self.digits)

    @property
    def software(self) -> str:
        """The framework and its version."""
        return f"{self.framework} {self.version or '(version not recorded)'}"

    @property
    def cited(self) -> str:
        """The source: number of runs, machine, date and files."""
        runs = f"median of {len(self.rates)} runs" if len(self.rates) > 1 else "one run"
        return f"{runs} on {self.machine}, {self.day}: {' '.join(self.files)}"


def rates_of(one: RecipeStatus) -> list[Measured]:
    """Return the throughput of a recipe's published runs in groups, the newest day first.

    The runs of a group have the same machine, framework version and day.
    """
    groups: dict[tuple[object, ...], list[tuple[Piece[RunEvidence], JudgedRow]]] = {}
    framework = one.file.card.card.framework
    for piece in one.own_runs():
        row = piece.content.row(METRIC)
        if row is not None and row.measured is not None:
            ran = piece.content.run
            key = (ran.recipe.nodes, ran.machine, piece.content.day,
                   ran.version_of(framework))
            groups.setdefault(key, []).append((piece, row))
    return [_group(one, found) for found in groups.values()]


def _group(one: RecipeStatus, found: Sequence[tuple[Piece[RunEvidence], JudgedRow]]) -> Measured:
    piece = found[0][0]
    ran, wanted = piece.content.run, one.file.recipe.resources
    known = one.file.card.card.metrics[METRIC]
    rates = [row.measured for _, row in found if row.measured is not None]
    return Measured(
        recipe=one.name, devices=(ran.recipe.nodes or wanted.nodes) * wanted.devices_per_node,
        machine=ran.machine,
        device=" and ".join(dict.fromkeys(ran.host.accelerators)) or ran.host.text,
        framework=one.file.card.card.framework,
        version=ran.version_of(one.file.card.card.framework),
        day=piece.content.day, rates=rates, unit=known.unit, digits=known.digits,
        on_target=all(row.outcome != "NO REFERENCE" for _, row in found),
        files=[piece.path for piece, _ in found],
    )
