"""Compare the throughput of one recipe with different versions of its framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from generator.measured import Measured, rates_of
from generator.plots import Plot
from generator.recipe_status import RecipeStatus
from generator.sources import Sources
from trimaran.report.rows import Dot, Row, Table

LOSS = 0.05
"""Fraction by which the throughput must decrease before a version counts as slower.

This project chose the value. It is above the usual difference between two days on one quiet
machine.
"""


@dataclass(frozen=True)
class Release:
    """The throughput of a recipe on one machine with one version of its framework.

    Attributes:
        ran: the runs of the newest day with this version.
        before: the runs with the previous version; None for the first version.
    """

    ran: Measured
    before: Measured | None

    @property
    def ratio(self) -> float | None:
        """The throughput relative to the previous version; None for the first version."""
        return None if self.before is None else self.ran.rate / self.before.rate

    @property
    def slower(self) -> bool:
        """Whether this version counts as slower than the previous version.

        Its median rate must be lower by more than `LOSS`, and each of its runs must be slower than
        each run of the previous version.
        """
        return (self.before is not None and self.ran.rate < (1 - LOSS) * self.before.rate
                and max(self.ran.rates) < min(self.before.rates))

    @property
    def against(self) -> str:
        """The comparison with the previous version, as text."""
        if self.before is None or self.ratio is None:
            return "the first version"
        word = ", slower" if self.slower else ""
        return f"{100 * self.ratio:.0f} % of {self.before.version}{word}"


def releases(sources: Sources) -> list[Release]:
    """Return the throughput with each framework version, for all recipes and machines.

    A recipe is left out for a machine on which it ran with only one version.
    """
    return [release for one in sources.standings.values() for release in releases_of(one)]


def releases_of(one: RecipeStatus) -> Iterator[Release]:
    """Yield the throughput of a recipe with each version, by machine, the oldest version first."""
    by_machine: dict[tuple[int, str], dict[str, Measured]] = {}
    for ran in rates_of(one):
        if ran.version is not None:
            versions = by_machine.setdefault((ran.devices, ran.machine), {})
            versions.setdefault(ran.version, ran)  # the newest day comes first
    for versions in by_machine.values():
        ordered = [versions[version] for version in sorted(versions, key=_order)]
        if len(ordered) > 1:
            yield from (Release(ran, before) for ran, before
                        in zip(ordered, [None, *ordered], strict=False))


def _order(version: str) -> tuple[bool, Version | str]:
    """Return the key that sorts versions; texts that are no versions come first."""
    try:
        return True, Version(version)
    except InvalidVersion:
        return False, version


def plot(found: Sequence[Release]) -> Plot:
    """Return a plot of the throughput, with a row for each recipe and framework version."""
    rows = [
        Row(f"{one.ran.recipe}, {one.ran.framework} {one.ran.version}",
            [Dot(one.ran.rate, f"{one.ran.shown(one.ran.rate)} {one.ran.unit}, {one.against}, "
                 f"{one.ran.machine}", one.ran.machine, min(one.ran.rates), max(one.ran.rates))],
            text="" if one.ratio is None else f"{100 * one.ratio:.0f} %")
        for one in found
    ]
    slower = sum(one.slower for one in found)
    return Plot(
        "framework-versions",
        Table("samples per second", rows, list(dict.fromkeys(one.ran.machine for one in found)),
              log=True),
        f"Throughput of {len(found)} versions of frameworks, each in the same recipe on the same"
        f" machine as the version before it; {slower} of them are slower.",
        "A dot for the median of the newest day, a line from the slowest run to the fastest. The"
        " percentage is relative to the version before. A version is slower if its median is more"
        f" than {100 * LOSS:.0f} % lower, and each of its runs is slower than each run before.",
        ["recipe", "machine", "framework", "version", "median:", "slowest:", "fastest:", "unit",
         "runs:", "against the version before", "date", "source"],
        [[one.ran.recipe, one.ran.machine, one.ran.framework, one.ran.version,
          *map(one.ran.shown, (one.ran.rate, min(one.ran.rates), max(one.ran.rates))),
          one.ran.unit, len(one.ran.rates), one.against, one.ran.day, " ".join(one.ran.files)]
         for one in found],
    )
