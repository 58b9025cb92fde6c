"""Draw curves as SVG in an HTML page, with the values for a script that shows them.

Without the script, and on paper, the curves are a static picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trimaran.report import page
from trimaran.report.panels import DECADE, MARKED, Line, Panel, Point

By = Literal["steps", "time"]

LEFT, RIGHT, TOP, BOTTOM = 52, 378, 10, 202
"""Positions of the axes in the SVG. A phone is about 330 CSS pixels wide."""

COLORS = 7
"""Number of colours and dash patterns in the style sheet of the page."""

_TIMES = ((2 * 3600, 3600, "h"), (180, 60, "min"), (0, 1, "s"))
"""(smallest time in seconds, seconds of the unit, unit); the first match decides."""


class Tick(NamedTuple):
    """A position on an axis and its text."""

    place: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis, which maps values to positions."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of `value`."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        part = ((math.log(value) if self.log else value) - low) / (high - low)
        return round(self.begin + part * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[Tick]:
        """Ticks at a few round values."""
        values = _decades(self.low, self.high) if self.log else _round(self.low, self.high)
        return [Tick(self.place(value), number(value)) for value in values]


class Curve(NamedTuple):
    """One line: its SVG path, marked points, values as JSON for the script, and a description."""

    label: str
    color: int
    path: str
    marks: list[tuple[float, float]]
    numbers: str
    text: str


class Chart(NamedTuple):
    """One panel for the template; `scale` is JSON for the script, `box` the area of the axes."""

    title: str
    by: By
    unit: str
    x: list[Tick]
    y: list[Tick]
    curves: list[Curve]
    scale: str
    text: str
    box: tuple[int, int, int, int] = (LEFT, RIGHT, BOTTOM, TOP)


def charts(panels: Sequence[Panel]) -> list[Chart]:
    """Return charts of the panels over steps and, if the events have times, over time."""
    timed = any(point.seconds > 0 for panel in panels for line in panel.lines
                for point in line.points)
    over: tuple[By, ...] = ("steps", "time") if timed else ("steps",)
    return [chart(panel, by) for by in over for panel in panels]


def picture(title: str, charts: Sequence[Chart]) -> str:
    """Return charts side by side as one SVG file."""
    return page.render("curves.svg.j2", {"title": title, "charts": charts})


def chart(panel: Panel, by: By = "steps", unit: str = "step") -> Chart:
    """Return the drawing of a panel; `unit` labels the horizontal axis, unless it is the time."""
    points = [point for line in panel.lines for point in line.points]
    factor = 1.0
    if by == "time":
        factor, unit = _time(max(point.seconds for point in points))
    x, y = _horizontal(points, by, factor), _vertical(panel)
    scale = {"x": [x.low, x.high], "y": [y.low, y.high], "log": y.log, "unit": unit,
             "box": [LEFT, RIGHT, BOTTOM, TOP]}
    curves = [_curve(line, by, factor, x, y) for line in panel.lines]
    over = f"{unit}s" if by == "steps" else f"time in {unit}"
    return Chart(
        panel.title, by, unit, x.ticks, y.ticks, curves, json.dumps(scale),
        f"{panel.title} over {over}: " + "; ".join(curve.text for curve in curves),
    )


def _at(point: Point, by: By, factor: float) -> float:
    return point.step if by == "steps" else point.seconds / factor


def _horizontal(points: Sequence[Point], by: By, factor: float) -> Axis:
    places = [_at(point, by, factor) for point in points]
    low, high = min(*places, 0), max(places)
    return Axis(low, high if high > low else low + 1, LEFT, RIGHT)


def _vertical(panel: Panel) -> Axis:
    low, high = panel.span
    if panel.logarithmic:
        return Axis(low / 1.1, high * 1.1, BOTTOM, TOP, log=True)
    if panel.axis == "from-zero" and low >= 0:
        return Axis(0, 1.05 * high or 1, BOTTOM, TOP)
    room = 0.05 * (high - low) or abs(high) / 10 or 1
    return Axis(low - room, high + room, BOTTOM, TOP)


def _curve(line: Line, by: By, factor: float, x: Axis, y: Axis) -> Curve:
    path, marks, numbers, begins = [], [], [], True
    for point in line.points:
        if not math.isfinite(point.value):
            begins = True
            continue
        at = _at(point, by, factor)
        across, up = x.place(at), y.place(point.value)
        path.append(f"{'M' if begins else 'L'}{across:g} {up:g}")
        numbers.append((_short(at), _short(point.value)))
        marks.append((across, up))
        begins = False
    first, last = numbers[0][1], numbers[-1][1]
    return Curve(
        line.label, line.color % COLORS, "".join(path), marks if len(marks) <= MARKED else [],
        json.dumps(numbers, separators=(",", ":")),
        f"{line.label} from {number(first)} to {number(last)}",
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _time(longest: float) -> tuple[float, str]:
    return next((factor, unit) for least, factor, unit in _TIMES if longest >= least)


def _round(low: float, high: float) -> list[float]:
    """Return about six values from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [_short(step * place)
            for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each decade for up to three decades, else only powers of ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < DECADE**3 * low else (1,)
    every = max(1, len(decades) // 8)
    return [factor * 10.0**power for power in decades if power % every == 0
            for factor in factors if low <= factor * 10.0**power <= high]


def number(value: float, digits: int = 4) -> str:
    """Return `value` in the usual notation, such as 2,500 or 0.05."""
    whole = value == round(value) and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"
