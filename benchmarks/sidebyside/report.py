"""The result of a benchmark as Markdown tables and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidebyside import machine
from sidebyside.runner import Contestant
from sidebyside.spread import Spread, ratios


@dataclass(frozen=True)
class Comparison:
    """A ratio of two rates, and its goal.

    Attributes:
        text: name of the ratio in the table.
        of: contestant in the numerator; if several are given, the fastest in each round is used.
        over: contestant or contestants in the denominator (also the fastest), or a fixed rate.
        goal: smallest median ratio that meets the goal; None: no goal.
    """

    text: str
    of: str | Sequence[str]
    over: str | Sequence[str] | float
    goal: float | None = None


@dataclass(frozen=True)
class Plan:
    """The contestants of a benchmark, and the comparisons between them.

    Attributes:
        contestants: the contestants in the order of execution.
        comparisons: the ratios between contestants.
        notes: facts that a reader needs to judge the figures.
        missing: comparisons that cannot be measured on this machine, with the reason.
        rows: function that returns a table, header first, which replaces the table of rates; None:
            the table has the rates.
    """

    contestants: Sequence[Contestant]
    comparisons: Sequence[Comparison]
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()
    rows: Callable[[Mapping[str, Spread]], list[list[str]]] | None = None


@dataclass(frozen=True)
class Report:
    """The result of a benchmark.

    Attributes:
        name: name of the benchmark.
        plan: contestants and comparisons.
        facts: facts of the machine.
        rates: contestant name -> rates, one per round.
        settings: options of the command line.
    """

    name: str
    plan: Plan
    facts: Mapping[str, Any]
    rates: Mapping[str, Spread]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def ratio(self, comparison: Comparison) -> Spread:
        """Return the ratio of the two rates that are compared, one value per round."""
        of, over = self._fastest(comparison.of), comparison.over
        if isinstance(over, float | int):
            return Spread(tuple(value / over for value in of.values))
        return ratios(of, self._fastest(over))

    def _fastest(self, names: str | Sequence[str]) -> Spread:
        """Return the highest rate of each round among the contestants `names`."""
        each = [self.rates[name].values for name in ([names] if isinstance(names, str) else names)]
        return Spread(tuple(max(values) for values in zip(*each, strict=True)))

    def markdown(self) -> str:
        """Return the tables and the notes as Markdown."""
        rates = [["rate", "unit", "min", "median", "max"]]
        for contestant in self.plan.contestants:
            spread = self.rates[contestant.name]
            rates.append([contestant.name, contestant.unit, *_figures(spread)])
        if self.plan.rows is not None:
            rates = self.plan.rows(self.rates)
        compared = [["ratio", "min", "median", "max", "goal", ""]]
        for comparison in self.plan.comparisons:
            spread, goal = self.ratio(comparison), comparison.goal
            verdict = "" if goal is None else "met" if spread.median >= goal else "NOT MET"
            wanted = "-" if goal is None else f">= {goal:g}"
            compared.append([comparison.text, *_figures(spread), wanted, verdict])
        for reason in self.plan.missing:
            compared.append([reason, "-", "-", "-", "-", "not measured"])
        notes = [f"- {note}" for note in (*self._about(), *self.plan.notes)]
        tables = [table(rows) for rows in (compared, rates) if len(rows) > 1]
        return "\n\n".join([*tables, "\n".join(notes)]) + "\n"

    def json(self) -> str:
        """Return the whole report as a JSON document."""
        plan = self.plan
        document = {
            "benchmark": self.name,
            "machine": dict(self.facts),
            "settings": dict(self.settings),
            "rates": [
                {"name": one.name, "unit": one.unit} | _document(self.rates[one.name])
                for one in plan.contestants
            ],
            "ratios": [
                dataclasses.asdict(one) | _document(self.ratio(one)) for one in plan.comparisons
            ],
            "table": None if plan.rows is None else plan.rows(self.rates),
            "not_measured": list(plan.missing),
            "notes": list(plan.notes),
        }
        return json.dumps(document, indent=2, allow_nan=False) + "\n"

    def _about(self) -> list[str]:
        facts = self.facts
        what = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
        rounds = len(next(iter(self.rates.values())).values)
        load, others, stolen = facts["load_before"], facts["others"], facts["stolen"]
        idle = load <= machine.IDLE and others + stolen <= machine.OTHERS
        busy = "" if idle else "; NOT IDLE, so these figures are a first look only"
        return [
            f"{facts['date']}, {facts['processor']} ({' '.join(facts['flags'])}), cores "
            f"{','.join(map(str, facts['cores']))}, {facts['memory_gib']} GiB"
            + "".join(f", {gpu}" for gpu in facts["gpus"]),
            f"Python {facts['python']}, {what}"
            + (f", revision {facts['revision']}" if facts["revision"] else "")
            + (f", in the image {facts['image']}" if facts["image"] else ", in no Apptainer image")
            + (f" ({facts['image_digest']})" if facts["image_digest"] else ""),
            f"rounds: {rounds}, contestants alternating; load average before: {load}; others used "
            f"{others:.1%} of the cores meanwhile, the hypervisor took {stolen:.1%}{busy}",
            f"command: `{facts['command']}`",
        ]


def _figures(spread: Spread) -> list[str]:
    return [f"{value:.3g}" if value < 100 else f"{value:,.0f}"
            for value in (spread.low, spread.median, spread.high)]


def _document(spread: Spread) -> dict[str, Any]:
    return {
        "values": list(spread.values),
        "min": spread.low,
        "median": spread.median,
        "max": spread.high,
    }


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` as an aligned Markdown table; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def markers(name: str) -> tuple[str, str]:
    """Return the marker lines that enclose the tables of benchmark `name` in a Markdown file."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def between_markers(text: str, name: str, tables: str) -> str:
    """Return `text` with `tables` in place of the text between the markers of benchmark `name`.

    Raises:
        ValueError: `text` does not have each marker exactly once, in order.
    """
    start, end = markers(name)
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed or start in after or end in before + after:
        raise ValueError(f"it needs the lines {start} and {end}, each once")
    return f"{before}{start}\n\n{tables}\n{end}{after}"


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to a temporary file, and rename it, so that `path` is never incomplete."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
