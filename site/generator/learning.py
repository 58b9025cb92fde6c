"""Plot the results of runs: metrics over steps and seconds, and final values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from generator.evidence import Piece
from generator.plots import Plot, encoding
from generator.recipe_status import RecipeStatus
from trimaran.report.run_evidence import RunEvidence

MARKED = 40
"""Largest number of points that get markers."""

LEAST = 2
"""Smallest number of points of a curve; the table of evidence shows single values."""


def curves_of(name: str, points: Sequence[RecipeStatus]) -> list[Plot]:
    """Return plots of the curves of a recipe's runs, over steps and over seconds.

    Two metrics are plotted: the first one that is judged (else the first one that is better
    higher), and the first one that is better lower.
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


def _curves(
    name: str, metric: str, unit: str, runs: Sequence[tuple[RecipeStatus, Piece[RunEvidence]]]
) -> list[Plot]:
    rows = [
        {"steps": step, "seconds": seconds, "value": value, "run": label_of(one, piece),
         "seed": piece.content.run.recipe.changed.get("seed", "the recipe's"),
         "file": piece.path, "date": str(piece.content.day)}
        for one, piece in runs for curve in piece.content.curves
        if curve.metric == metric and len(curve.points) >= LEAST
        for step, seconds, value in curve.points
    ]
    title = f"{metric}, {unit}" if unit else metric
    days = sorted({str(row["date"]) for row in rows})
    drawn = {str(row["file"]) for row in rows}
    machines = sorted({piece.content.run.host.text for _, piece in runs if piece.path in drawn})
    return [
        Plot(
            f"curve-{name.replace('/', '-')}-{metric}-{over}",
            {
                "height": 260, "data": {"values": rows},
                "mark": {"type": "line", "point": len(rows) < MARKED},
                "encoding": {
                    "x": encoding(over, "quantitative", over),
                    "y": encoding("value", "quantitative", title, scale={"zero": False}),
                    "color": encoding("run", "nominal", legend={"title": None}),
                    "detail": {"field": "file"},
                    "tooltip": [encoding(key, "nominal") for key in ("run", "seed", "date")]
                    + [encoding(key, "quantitative") for key in ("steps", "seconds", "value")],
                },
            },
            f"{metric} of {len(_lasts(rows))} runs of {name} over {over}; the last values are"
            f" {min(_lasts(rows)):.5g} to {max(_lasts(rows)):.5g} {unit}".rstrip() + ".",
            f"{metric} over {over}; measured {' and '.join(days)} on {'; '.join(machines)}.",
            ["run", "seed", f"{over}:", f"{title}:", "date"],
            [[row["run"], row["seed"], row[over], row["value"], row["date"]] for row in rows],
        )
        for over in ("steps", "seconds")
    ]


def _lasts(rows: Sequence[dict[str, Any]]) -> list[float]:
    return list({row["file"]: float(row["value"]) for row in rows}.values())


def accuracies(one: RecipeStatus, metric: str) -> Plot:
    """Return a plot of the final values of the runs of a recipe, by variation and seed."""
    values = [
        {"run": label_of(one, piece), "value": row.measured or 0.0,
         "seed": piece.content.run.recipe.changed.get("seed", "the recipe's"),
         "date": str(piece.content.day)}
        for piece in one.runs if (row := piece.content.row(metric)) is not None
    ]
    labels: dict[str, list[float]] = {}
    for value in values:
        labels.setdefault(str(value["run"]), []).append(float(str(value["value"])))
    name, unit = one.name, one.file.card.card.metrics[metric].unit
    order = sorted(labels, key=lambda label: -median(labels[label]))
    spec = {
        "height": {"step": 34}, "data": {"values": values},
        "encoding": {
            "y": encoding("run", "nominal", axis={"title": None, "labelLimit": 340}, sort=order),
            "x": encoding("value", "quantitative", f"{metric}, {unit}", scale={"zero": False}),
        },
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.8},
             "encoding": {"tooltip": [encoding(key, "nominal") for key in ("run", "seed", "date")]
                          + [encoding("value", "quantitative")]}},
            {"mark": {"type": "tick", "thickness": 2, "size": 22}, "encoding": {
                "x": {"field": "value", "type": "quantitative", "aggregate": "median"}}},
        ],
    }
    days = sorted({str(value["date"]) for value in values})
    return Plot(
        f"accuracy-{name.replace('/', '-')}", spec,
        f"{metric} at the end of {len(values)} runs of {name}, in {len(order)} variations; best"
        f" median {median(labels[order[0]]):.2f} {unit} ({order[0]}), least"
        f" {median(labels[order[-1]]):.2f} {unit} ({order[-1]}).",
        f"A point for each seed, a tick for the median; measured {' and '.join(days)}.",
        ["variation of the recipe", "seed", f"{metric}, {unit}:", "date"],
        [[value["run"], value["seed"], value["value"], value["date"]] for value in values],
    )


def reached(standings: Iterable[RecipeStatus]) -> Plot:
    """Return a plot of results relative to the expected values, for runs of current recipes."""
    values = [
        {"what": f"{one.name.partition('/')[2]}, {number.expected.metric}", "recipe": one.name,
         "part": row.measured / number.expected.value, "bound": bound / number.expected.value,
         "number": "published" if number.date is None else "measured here before",
         "result": row.measured_text, "date": str(piece.content.day)}
        for one in standings for number in one.numbers for piece in one.own_runs()
        if (row := piece.content.row(number.expected.metric)) and row.measured is not None
        if (bound := next((b for b in number.expected.bounds if b is not None), None)) is not None
    ]
    spec = {
        "height": {"step": 26}, "data": {"values": values},
        "encoding": {"y": encoding("what", "nominal", sort=None,
                                   axis={"title": None, "labelLimit": 300})},
        "layer": [
            {"mark": {"type": "tick", "thickness": 2, "size": 20, "strokeDash": [2, 2]},
             "encoding": {"x": {"field": "bound", "type": "quantitative"}}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.8}, "encoding": {
                "x": encoding("part", "quantitative", "part of what is expected",
                              scale={"zero": False}, axis={"format": "%"}),
                "color": encoding("number", "nominal", legend={"title": None}),
                "tooltip": [encoding(key, "nominal") for key in ("recipe", "result", "date")]}},
        ],
    }
    far = min(values, key=lambda value: float(str(value["part"])))
    return Plot(
        "reached", spec,
        f"The results of {len(values)} runs relative to the values that their recipes expect; the"
        f" lowest is {float(str(far['part'])):.1%} of {far['what']}.",
        "One point for each run in evidence; dashed: the bound of PASS. Runs beyond it were judged"
        " by an earlier version of the recipe.",
        ["recipe", "metric and recipe", "result:", "of expected:", "date"],
        [[value["recipe"], value["what"], value["result"], f"{float(str(value['part'])):.1%}",
          value["date"]] for value in values],
    )
