"""Select the curves of a run to draw: the panels of the app card, with few points per line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from trimaran.recipes.cards import AxisKind, Card, Metric
from trimaran.verdict.metrics import Event

MOST = 400
"""Maximum number of drawn points of a line; a picture is a few hundred pixels wide."""

LARGEST = 1e30
"""Limit of the absolute values that are drawn; larger values would make all others invisible."""

MARKED = 30
"""Maximum number of points of a line on which each point is drawn with a marker.

Lines with more points have no markers. A line of a single point needs its marker to be
visible.
"""

DECADE = 10.0


class Point(NamedTuple):
    """One value of a line; NaN is a gap in the line.

    `seconds` is the time since the start of the run, including pauses while it was stopped.
    """

    step: int
    seconds: float
    value: float


class Line(NamedTuple):
    """One metric; `color` is the index of its colour, from 0.

    `tip` is the tooltip of the line, and the beginning of the tooltip of each marked point. Without
    `tip`, the line has no tooltips.
    """

    label: str
    points: Sequence[Point]
    color: int
    tip: str = ""


class Panel(NamedTuple):
    """A panel: title, axis and lines, each with at least one value."""

    title: str
    axis: AxisKind
    lines: list[Line]

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest finite value of all lines."""
        drawn = [point.value for line in self.lines for point in line.points
                 if math.isfinite(point.value)]
        return min(drawn), max(drawn)

    @property
    def logarithmic(self) -> bool:
        """Whether the axis is logarithmic: the card requests this, and the values span a decade."""
        low, high = self.span
        return self.axis == "log" and low > 0 and high >= DECADE * low


def collect(events: Sequence[Event], card: Card) -> list[Panel]:
    """Return the panels that the app card defines and for which `events` have values to draw."""
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    if begun is None:
        begun = events[0].time_ms if events else 0
    by_key: dict[str, list[Event]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event)
    panels: dict[str, Panel] = {}
    places: dict[str, int] = {}
    for name, metric in card.metrics.items():
        if metric.panel is None:
            continue
        color = places[metric.panel] = places.get(metric.panel, -1) + 1
        points = thinned(_points(by_key.get(metric.key, []), metric, begun))
        panel = panels.setdefault(metric.panel, Panel(metric.panel, metric.axis, []))
        if points:
            panel.lines.append(Line(metric.label or name, points, color))
    return [panel for panel in panels.values() if panel.lines]


def _points(events: Sequence[Event], metric: Metric, begun: int) -> list[Point]:
    values = (
        (event.number("step") or 0, (event.time_ms - begun) / 1000,
         math.nan if event.finite is None else event.finite * metric.factor)
        for event in events
    )
    return drawable(values)


def drawable(values: Iterable[tuple[int, float, float]]) -> list[Point]:
    """Convert (step, seconds, value) tuples to points; a NaN or too large value becomes a gap.

    The result is empty if all values are gaps.
    """
    points = [
        Point(step, seconds, value if abs(value) < LARGEST else math.nan)
        for step, seconds, value in values if 0 <= step < LARGEST and abs(seconds) < LARGEST
    ]
    return points if any(math.isfinite(point.value) for point in points) else []


def thinned(points: Sequence[Point], most: int = MOST) -> Sequence[Point]:
    """Return at most `most` points: the smallest and the largest value of each interval.

    No peak is lost. The first and the last point are kept; an interval without values is a gap.
    """
    if len(points) <= most:
        return points
    stretches = max(1, (most - 2) // 2)
    inner, kept = points[1:-1], [points[0]]
    for number in range(stretches):
        stretch = inner[len(inner) * number // stretches : len(inner) * (number + 1) // stretches]
        valued = [point for point in stretch if math.isfinite(point.value)]
        if not valued:
            kept.append(stretch[0])
            continue
        ends = {min(valued, key=_value), max(valued, key=_value)}
        kept += sorted(ends)  # by step, which is the order in time
    return [*kept, points[-1]]


def _value(point: Point) -> float:
    return point.value


T = TypeVar("T")

MOST_KEPT = 120
"""Maximum number of points of a curve in evidence, including the first and the last point."""

DIGITS = 6
"""Number of significant digits of the values in evidence."""


class KeptCurve(BaseModel):
    """The curve of one metric of a run, for its evidence.

    Attributes:
        metric: name of the metric in the app card.
        unit: unit of the values.
        points: (step, seconds since the start of the run, value), ordered by time; the seconds
            include pauses.
    """

    metric: str
    unit: str
    points: list[tuple[int, float, float]]


def kept_curves(events: Sequence[Event], card: Card) -> list[KeptCurve]:
    """Return the curves for evidence: reported metrics that have a panel in the app card."""
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    if begun is None:
        return []
    curves = []
    for name, metric in card.metrics.items():
        points = [
            (event.number("step") or 0, round((event.time_ms - begun) / 1000, 1),
             float(f"{event.finite * metric.factor:.{DIGITS}g}"))
            for event in events if event.key == metric.key and event.finite is not None
            and math.isfinite(event.finite * metric.factor)
        ]
        if metric.panel is not None and points:
            curves.append(KeptCurve(metric=name, unit=metric.unit, points=evenly(points)))
    return curves


def evenly(points: Sequence[T], most: int = MOST_KEPT) -> list[T]:
    """Return at most `most` of the points, evenly spaced, including the first and the last."""
    if len(points) <= most:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (most - 1))] for place in range(most)]
