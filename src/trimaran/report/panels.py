"""What of a run is drawn: panels as its app's card names them, with few points for each line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimaran.recipes.cards import AxisKind, Card, Metric
from trimaran.verdict.metrics_log import Event

MOST = 400
"""Points of a line that are drawn: a picture is a few hundred of its own points wide."""

LARGEST = 1e30
"""Beyond, nothing is drawn: it is no loss and no speed, and an axis up to it shows nothing else."""

MARKED = 30
"""Points up to which each is marked: a line of one point is not seen otherwise."""

DECADE = 10.0


class Point(NamedTuple):
    """One value, which is NaN where the line has a gap; `seconds` since the start of the run.

    The pauses of a run that was stopped are among the seconds.
    """

    step: int
    seconds: float
    value: float


class Line(NamedTuple):
    """One metric; `color` is its place among the colours of the page, from 0."""

    label: str
    points: Sequence[Point]
    color: int


class Panel(NamedTuple):
    """Axes with a title, and their lines, each of which has at least one value."""

    title: str
    axis: AxisKind
    lines: list[Line]

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        drawn = [point.value for line in self.lines for point in line.points
                 if math.isfinite(point.value)]
        return min(drawn), max(drawn)

    @property
    def logarithmic(self) -> bool:
        """Whether the axis of the values is: the card wants it, and they span a decade."""
        low, high = self.span
        return self.axis == "log" and low > 0 and high >= DECADE * low


def collect(events: Sequence[Event], card: Card) -> list[Panel]:
    """Return the panels that the card names, as far as the run has reported what is in them."""
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    if begun is None:
        begun = events[0].time_ms if events else 0
    by_key: dict[str, list[Event]] = {}
    for event in events:
        by_key.setdefault(event.key, []).append(event)
    found: dict[str, Panel] = {}
    places: dict[str, int] = {}
    for name, metric in card.metrics.items():
        if metric.panel is None:
            continue
        color = places[metric.panel] = places.get(metric.panel, -1) + 1
        points = thinned(_points(by_key.get(metric.key, []), metric, begun))
        panel = found.setdefault(metric.panel, Panel(metric.panel, metric.axis, []))
        if points:
            panel.lines.append(Line(metric.label or name, points, color))
    return [panel for panel in found.values() if panel.lines]


def _points(events: Sequence[Event], metric: Metric, begun: int) -> list[Point]:
    """Return the values in the unit, as far as they can be drawn."""
    told = (
        (event.number("step") or 0, (event.time_ms - begun) / 1000,
         math.nan if event.finite is None else event.finite * metric.factor)
        for event in events
    )
    return drawable(told)


def drawable(told: Iterable[tuple[int, float, float]]) -> list[Point]:
    """Return steps, seconds and values as points; a value that is no number or too large is a gap.

    None is left where all are.
    """
    points = [
        Point(step, seconds, value if abs(value) < LARGEST else math.nan)
        for step, seconds, value in told if 0 <= step < LARGEST and abs(seconds) < LARGEST
    ]
    return points if any(math.isfinite(point.value) for point in points) else []


def thinned(points: Sequence[Point], most: int = MOST) -> Sequence[Point]:
    """Return at most `most` of the points: of each stretch the least and the largest.

    So no peak is lost. The first and the last point stay, and a stretch without numbers is a gap.
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
        kept += sorted(ends)  # by step, and so in the order of time
    return [*kept, points[-1]]


def _value(point: Point) -> float:
    return point.value
