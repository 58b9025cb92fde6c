"""The plots of what runs reached: metrics over steps and seconds, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from generator.plots import Plot, encoding
from trimaran.evidence.shelf import Piece
from trimaran.evidence.standing import Standing
from trimaran.runs.evidence import RunEvidence


def curves_of(name: str, points: Sequence[Standing]) -> list[Plot]:
    """Return what the runs of a recipe reached over their steps, and over their seconds."""
    runs = [(one, piece) for one in points for piece in one.runs if piece.content.curves]
    if not runs:
        return []
    known = points[0].file.card.card.metrics
    judged = [number.expected.metric for number in points[0].numbers]
    there = {curve.metric for _, piece in runs for curve in piece.content.curves}
    wanted = [metric for metric in judged if metric in there and not known[metric].hardware_bound]
    wanted = wanted or [metric for metric in known if metric in there
                        and known[metric].better == "higher" and not known[metric].hardware_bound]
    return [
        plot for metric in wanted[:1]
        for plot in _curves(name, metric, known[metric].unit, runs)
    ]


def label_of(piece: Piece[RunEvidence]) -> str:
    """Return what a run was, in a legend: what was changed, and on which machine."""
    changed = {key: value for key, value in piece.content.run.recipe.changed.items()
               if key != "seed"}
    words = [f"{key}={value}" for key, value in changed.items()]
    return ", ".join(words) or "as the recipe has it"


def _curves(
    name: str, metric: str, unit: str, runs: Sequence[tuple[Standing, Piece[RunEvidence]]]
) -> list[Plot]:
    rows = [
        {"steps": step, "seconds": seconds, "value": value, "run": label_of(piece),
         "seed": piece.content.run.recipe.changed.get("seed", "the recipe's"),
         "file": piece.path, "date": str(piece.content.day)}
        for _, piece in runs for curve in piece.content.curves if curve.metric == metric
        for step, seconds, value in curve.points
    ]
    title = f"{metric}, {unit}" if unit else metric
    days = sorted({str(row["date"]) for row in rows})
    machines = sorted({piece.content.run.host.text for _, piece in runs})
    return [
        Plot(
            f"curve-{name.replace('/', '-')}-{over}",
            {
                "height": 260, "data": {"values": rows}, "mark": {"type": "line", "point": True},
                "encoding": {
                    "x": encoding(over, "quantitative", over),
                    "y": encoding("value", "quantitative", title, scale={"zero": False}),
                    "color": encoding("run", "nominal", legend={"title": None}),
                    "detail": {"field": "file"},
                    "tooltip": [encoding(key, "nominal") for key in ("run", "seed", "date")]
                    + [encoding(key, "quantitative") for key in ("steps", "seconds", "value")],
                },
            },
            f"{metric} of {len(runs)} runs of {name} over {over}; the last values are"
            f" {min(_lasts(rows)):.5g} to {max(_lasts(rows)):.5g} {unit}".rstrip() + ".",
            f"{metric} over {over}; measured {' and '.join(days)} on {'; '.join(machines)}.",
            ["run", "seed", f"{over}:", f"{title}:", "date"],
            [[row["run"], row["seed"], row[over], row["value"], row["date"]] for row in rows],
        )
        for over in ("steps", "seconds")
    ]


def _lasts(rows: Sequence[dict[str, Any]]) -> list[float]:
    return list({row["file"]: float(row["value"]) for row in rows}.values())


def accuracies(name: str, metric: str, runs: Sequence[Piece[RunEvidence]]) -> Plot:
    """Return what the runs of a recipe and of its variations ended with, a point for each seed."""
    values = [
        {"run": label_of(piece), "value": row.measured or 0.0,
         "seed": piece.content.run.recipe.changed.get("seed", "the recipe's"),
         "date": str(piece.content.day)}
        for piece in runs if (row := piece.content.row(metric)) is not None
    ]
    labels: dict[str, list[float]] = {}
    for value in values:
        labels.setdefault(str(value["run"]), []).append(float(str(value["value"])))
    unit = next(row.unit for piece in runs if (row := piece.content.row(metric)))
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
