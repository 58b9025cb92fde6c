"""Plot the results of runs: metrics over steps and seconds, and final values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from generator.evidence import Piece
from generator.plots import Lines, Plot
from generator.recipe_status import RecipeStatus
from trimaran.report import charts
from trimaran.report.panels import Line, Panel, drawable, evenly
from trimaran.report.rows import Dot, Row, Table
from trimaran.report.run_evidence import RunEvidence

CurvePoint = tuple[int, float, float]
"""Step, seconds since the start of the run, and value of the metric."""

LEAST = 2
"""Minimum number of points of a plotted curve.

A single value is not plotted, because the table of evidence shows it.
"""

IN_TABLE = 5
"""Maximum number of points of a curve in the table of a page; the CSV file has all points."""


def curves_of(name: str, points: Sequence[RecipeStatus]) -> list[Plot]:
    """Return plots of the curves of a recipe's runs, over steps and over seconds.

    Two metrics are plotted: the first judged metric (else the first for which higher is better),
    and the first for which lower is better.
    """
    runs = [(one, piece) for one in points for piece in one.runs]
    known = points[0].file.card.card.metrics
    longest: dict[str, int] = {}
    for _, piece in runs:
        for curve in piece.content.curves:
            longest[curve.metric] = max(longest.get(curve.metric, 0), len(curve.points))
    there = [metric for metric in known
             if longest.get(metric, 0) >= LEAST and not known[metric].hardware_bound]
    judged = [number.expected.metric for number in points[0].numbers]
    best = [metric for metric in judged if metric in there] or [
        metric for metric in there if known[metric].better == "higher"]
    lowest = [metric for metric in there if known[metric].better == "lower"]
    return [plot for metric in (*best[:1], *lowest[:1])
            for plot in _curves(name, metric, known[metric].unit, runs)]


def label_of(one: RecipeStatus, piece: Piece[RunEvidence]) -> str:
    """Return the label of a run in a legend: its changed arguments."""
    changed = one.changes(piece)
    wording = changed.pop("wording", None)
    words = [*([wording] if wording else []), *(f"{key}={value}" for key, value in changed.items())]
    return ", ".join(words) or "as the recipe has it"


def _tip(piece: Piece[RunEvidence], label: str) -> str:
    """Return the tooltip of a run: its label, seed and date."""
    return f"{label}, seed {_seed(piece)}, {piece.content.day}"


def _seed(piece: Piece[RunEvidence]) -> object:
    return piece.content.run.recipe.changed.get("seed", "the recipe's")


OVER: dict[charts.By, str] = {"steps": "steps", "time": "seconds"}
"""Quantity of the horizontal axis -> its name in files and tables."""


def _curves(
    name: str, metric: str, unit: str, runs: Sequence[tuple[RecipeStatus, Piece[RunEvidence]]]
) -> list[Plot]:
    drawn = [
        (label_of(one, piece), piece, curve.points)
        for one, piece in runs for curve in piece.content.curves
        if curve.metric == metric and len(curve.points) >= LEAST
    ]
    colors = {label: place for place, label in enumerate(dict.fromkeys(one[0] for one in drawn))}
    lines = [
        Line(label, drawable(points), colors[label] % charts.COLORS, _tip(piece, label))
        for label, piece, points in drawn
    ]
    title = f"{metric}, {unit}" if unit else metric
    panel = Panel(title, "plain", [line for line in lines if line.points])
    days = sorted({str(piece.content.day) for _, piece, _ in drawn})
    machines = sorted({piece.content.run.host.text for _, piece, _ in drawn})
    lasts = [points[-1][2] for _, _, points in drawn]

    def rows(by: charts.By, count: int | None) -> list[list[object]]:
        return [
            [label, _seed(piece), seconds if by == "time" else step, value, piece.content.day]
            for label, piece, points in drawn
            for step, seconds, value in evenly(points, count or len(points))
        ]

    return [
        Plot(
            f"curve-{name.replace('/', '-')}-{metric}-{over}", Lines(panel, by),
            f"{metric} of {len(lasts)} runs of {name} over {over}; the last values are"
            f" {min(lasts):.5g} to {max(lasts):.5g} {unit}".rstrip() + ".",
            f"{metric} over {over}; measured {' and '.join(days)} on {'; '.join(machines)}.",
            ["run", "seed", f"{over}:", f"{title}:", "date"], rows(by, None), rows(by, IN_TABLE),
        )
        for by, over in OVER.items()
    ]


def accuracies(one: RecipeStatus, metric: str) -> Plot:
    """Return a plot of the values of `metric` in the runs of a recipe, with a dot for each run.

    Runs that change the recipe's arguments in the same way, apart from neutral options such as
    the seed, share a row.
    """
    found = [(label_of(one, piece), piece, row.measured or 0.0) for piece in one.runs
             if (row := piece.content.row(metric)) is not None]
    labels: dict[str, list[Dot]] = {}
    for label, piece, value in found:
        labels.setdefault(label, []).append(Dot(value, f"{_tip(piece, label)}: {value:g}"))
    name, unit = one.name, one.file.card.card.metrics[metric].unit
    rows = sorted((Row(label, dots, median(dot.value for dot in dots))
                   for label, dots in labels.items()), key=lambda row: -(row.mark or 0))
    days = sorted({str(piece.content.day) for _, piece, _ in found})
    return Plot(
        f"accuracy-{name.replace('/', '-')}", Table(f"{metric}, {unit}", rows),
        f"{metric} at the end of {len(found)} runs of {name}, in {len(rows)} variations; best"
        f" median {rows[0].mark:.2f} {unit} ({rows[0].name}), least"
        f" {rows[-1].mark:.2f} {unit} ({rows[-1].name}).",
        f"A dot for each seed, a vertical line for the median; measured {' and '.join(days)}.",
        ["variation of the recipe", "seed", f"{metric}, {unit}:", "date"],
        [[label, _seed(piece), value, piece.content.day] for label, piece, value in found],
    )


def reached(standings: Iterable[RecipeStatus]) -> Plot:
    """Return a plot of the results of unchanged recipes, relative to their expected values."""
    rows: list[Row] = []
    table: list[list[object]] = []
    far = (math.inf, "")
    for one in standings:
        for number in one.numbers:
            metric, value = number.expected.metric, number.expected.value
            bound = next((bound for bound in number.expected.bounds if bound is not None), None)
            name, dots = f"{one.name.partition('/')[2]}, {metric}", []
            for piece in one.own_runs() if bound is not None else ():
                row = piece.content.row(metric, number.expected.at)
                if row is None or row.measured is None:
                    continue
                part, day = row.measured / value, piece.content.day
                dots.append(Dot(100 * part, f"{one.name}, {row.measured_text}, {day}",
                                ORIGINS[number.date is not None]))
                table.append([one.name, name, row.measured_text, f"{part:.1%}", day])
                far = min(far, (part, name))
            if dots and bound is not None:
                rows.append(Row(name, dots, 100 * bound / value))
    return Plot(
        "reached", Table("result, % of the expected value", rows, ORIGINS),
        f"The results of {len(table)} runs relative to the values that their recipes expect; the"
        f" lowest is {far[0]:.1%} of {far[1]}.",
        "One dot for each run in evidence; vertical line: the bound of PASS. Runs beyond it were"
        " judged by an earlier version of the recipe.",
        ["recipe", "metric and recipe", "result:", "of expected:", "date"], table,
    )


ORIGINS = ("expected value published", "expected value measured here before")
"""Origins of the expected value with which a result is compared: texts for a plot's legend."""
