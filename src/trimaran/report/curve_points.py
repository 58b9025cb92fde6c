"""The curves of a run as numbers, for evidence: each metric over steps and over seconds."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from trimaran.recipes.cards import Card
from trimaran.verdict.metrics_log import Event

MOST = 120
"""Points that are kept of a metric, its first and last among them: a picture shows no more."""

DIGITS = 6
"""Significant digits that are kept."""


class KeptCurve(BaseModel):
    """One metric of a run.

    Attributes:
        metric: its name in the card of the app.
        unit: of the values.
        points: updates made, seconds since the start of the run (pauses of a stopped one
            included), value; by time.
    """

    metric: str
    unit: str
    points: list[tuple[int, float, float]]


def collect(events: Sequence[Event], card: Card) -> list[KeptCurve]:
    """Return the metrics that the card gives a panel, as far as the run has reported them."""
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    if begun is None:
        return []
    found = []
    for name, metric in card.metrics.items():
        points = [
            (event.number("step") or 0, round((event.time_ms - begun) / 1000, 1),
             float(f"{event.finite * metric.factor:.{DIGITS}g}"))
            for event in events if event.key == metric.key and event.finite is not None
        ]
        if metric.panel is not None and points:
            found.append(KeptCurve(metric=name, unit=metric.unit, points=thinned(points)))
    return found


def thinned(points: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Return at most `MOST` of the points, evenly spread, with the first and the last."""
    if len(points) <= MOST:
        return points
    return [points[round(place * (len(points) - 1) / (MOST - 1))] for place in range(MOST)]
