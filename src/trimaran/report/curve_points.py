"""Collect the curves of a run for its evidence: the values of each metric with step and time."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from trimaran.recipes.cards import Card
from trimaran.verdict.metrics_log import Event

MOST = 120
"""Maximum number of points of a metric, including the first and the last point."""

DIGITS = 6
"""Number of significant digits of the values."""


class KeptCurve(BaseModel):
    """The curve of one metric of a run.

    Attributes:
        metric: name of the metric in the app card.
        unit: unit of the values.
        points: (step, seconds since the start of the run with pauses, value), ordered by time.
    """

    metric: str
    unit: str
    points: list[tuple[int, float, float]]


def collect(events: Sequence[Event], card: Card) -> list[KeptCurve]:
    """Return the curves of the reported metrics that have a panel in the app card."""
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    if begun is None:
        return []
    curves = []
    for name, metric in card.metrics.items():
        points = [
            (event.number("step") or 0, round((event.time_ms - begun) / 1000, 1),
             float(f"{event.finite * metric.factor:.{DIGITS}g}"))
            for event in events if event.key == metric.key and event.finite is not None
        ]
        if metric.panel is not None and points:
            curves.append(KeptCurve(metric=name, unit=metric.unit, points=thinned(points)))
    return curves


def thinned(points: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Return at most `MOST` of the points, evenly spaced, including the first and the last."""
    if len(points) <= MOST:
        return points
    return [points[round(place * (len(points) - 1) / (MOST - 1))] for place in range(MOST)]
