"""Draw curves as SVG, and add their values for the script of an HTML page.

The script displays the values at the pointer. Without the script, the curves are a static picture.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from trimaran.report import page
from trimaran.report.panels import MARKED, Line, Panel, Point

By = Literal["steps", "time"]

WIDTH, HEIGHT = 400, 240
"""Size of a chart in SVG units, for phones with a width of about 330 CSS pixels."""

LEFT, RIGHT, TOP, BOTTOM = 52, WIDTH - 22, 10, HEIGHT - 38
"""Positions of the edges of the plot area in SVG units."""

LETTER = 6.6
"""Average width of a letter or digit in SVG units, at a font size of 12 units."""

COLORS = 7
"""Number of colours and dash patterns in the style sheet of the page."""

MOST = 10
"""Maximum number of ticks of an axis."""

_TIMES = ((2 * 3600, 3600, "h"), (180, 60, "min"), (0, 1, "s"))
"""Units of time axes: (shortest time in seconds, seconds in the unit, unit).

A chart uses the first unit in this list for which its longest curve is long enough.
"""


class Tick(NamedTuple):
    """A tick: its position on an axis, and its text."""

    place: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis, which maps values to positions.

    The value `low` is drawn at the position `begin`, and the value `high` at the position `end`.

    `doubling` makes the ticks of a logarithmic axis powers of two.
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False
    doubling: bool = False

    def place(self, value: float) -> float:
        """Return the position at which `value` is drawn, in SVG units."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        part = ((math.log(value) if self.log else value) - low) / (high - low)
        return round(self.begin + part * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[Tick]:
        """Ticks of a vertical axis, at a few round values."""
        return next(ticks for ticks in self._choices() if len(ticks) <= MOST)

    @property
    def spaced(self) -> list[Tick]:
        """Ticks of a horizontal axis, whose texts do not touch."""
        for ticks in self._choices():
            if len(ticks) <= MOST and all(
                right.place - left.place > LETTER * (len(left.text) + len(right.text)) / 2 + 6
                for left, right in pairwise(ticks)
            ):
                break
        return ticks

    def _choices(self) -> Iterator[list[Tick]]:
        """Yield lists of ticks at round values, each with fewer ticks than the list before."""
        choices: Iterator[list[float]]
        if not self.log:
            choices = (_round(self.low, self.high, parts) for parts in range(6, 1, -1))
        elif self.doubling:
            choices = (_powers(self.low, self.high, 2, (1,), every) for every in range(1, 99))
        else:
            finest = _powers(self.low, self.high, 10, (1, 2, 5), 1)
            coarser = (_powers(self.low, self.high, 10, (1,), every) for every in range(1, 99))
            choices = chain([finest], coarser)
        return ([Tick(self.place(value), number(value)) for value in values] for values in choices)


class Mark(NamedTuple):
    """A data point of a line that is drawn with a marker; `tip` is its tooltip ("": none)."""

    x: float
    y: float
    tip: str


class Curve(NamedTuple):
    """One line: SVG path, marked points, values as JSON for the script, and description."""

    label: str
    color: int
    path: str
    marks: list[Mark]
    numbers: str
    text: str
    tip: str


class Chart(NamedTuple):
    """One chart for the HTML template; `scale` is JSON for the script; `box` is the plot area."""

    title: str
    by: By
    unit: str
    x: list[Tick]
    y: list[Tick]
    curves: list[Curve]
    scale: str
    text: str
    width: int
    box: tuple[int, int, int, int]
    height: int = HEIGHT

    @property
    def keys(self) -> list[tuple[int, str]]:
        """Colours and labels of the legend; lines with the same label share an entry."""
        return list(dict.fromkeys((curve.color, curve.label) for curve in self.curves))


def charts(panels: Sequence[Panel]) -> list[Chart]:
    """Return one chart over training steps for each panel.

    If at least one point has a time, one chart over time for each panel follows.
    """
    timed = any(point.seconds > 0 for panel in panels for line in panel.lines
                for point in line.points)
    over: tuple[By, ...] = ("steps", "time") if timed else ("steps",)
    return [chart(panel, by) for by in over for panel in panels]


def picture(title: str, charts: Sequence[Chart]) -> str:
    """Return charts side by side as one SVG file."""
    return page.render("curves.svg.j2", {"title": title, "charts": charts})


def chart(
    panel: Panel, by: By = "steps", unit: str = "step", *, width: int = WIDTH,
    doubling: bool = False,
) -> Chart:
    """Return the drawing of a panel.

    Args:
        panel: the panel to draw.
        by: quantity of the horizontal axis.
        unit: label of the horizontal axis, unless its quantity is the time.
        width: width of the drawing in SVG units.
        doubling: whether the horizontal axis is logarithmic, with powers of two.
    """
    points = [point for line in panel.lines for point in line.points]
    factor = 1.0
    if by == "time":
        factor, unit = _time(max(point.seconds for point in points))
    box = (LEFT, width - WIDTH + RIGHT, BOTTOM, TOP)
    x = _horizontal([_at(point, by, factor) for point in points], box[1], doubling)
    y = _vertical(panel)
    scale = {"x": [x.low, x.high], "y": [y.low, y.high], "log": y.log, "unit": unit, "box": box}
    curves = [_curve(line, [_at(point, by, factor) for point in line.points], unit, x, y)
              for line in panel.lines]
    over = f"{unit}s" if by == "steps" else f"time in {unit}"
    return Chart(
        panel.title, by, unit, x.spaced, y.ticks, curves, json.dumps(scale),
        f"{panel.title} over {over}: " + "; ".join(curve.text for curve in curves), width, box,
    )


def _at(point: Point, by: By, factor: float) -> float:
    return point.step if by == "steps" else point.seconds / factor


def _horizontal(places: Sequence[float], right: float, doubling: bool) -> Axis:
    low, high = min(places) if doubling else min(*places, 0), max(places)
    return Axis(low, high if high > low else low + 1, LEFT, right, doubling, doubling)


def _vertical(panel: Panel) -> Axis:
    low, high = panel.span
    if panel.logarithmic:
        return Axis(low / 1.1, high * 1.1, BOTTOM, TOP, log=True)
    return Axis(*around(low, high, panel.axis == "from-zero"), BOTTOM, TOP)


def around(low: float, high: float, zero: bool) -> tuple[float, float]:
    """Return the ends of a linear axis for values from `low` to `high`.

    If `zero` is true and no value is negative, the axis begins at zero.
    """
    if zero and low >= 0:
        return 0, 1.05 * high or 1
    room = 0.05 * (high - low) or abs(high) / 10 or 1
    return low - room, high + room


def _curve(line: Line, places: Sequence[float], unit: str, x: Axis, y: Axis) -> Curve:
    path, marks, numbers, begins = [], [], [], True
    for at, point in zip(places, line.points, strict=True):
        if not math.isfinite(point.value):
            begins = True
            continue
        across, up = x.place(at), y.place(point.value)
        path.append(f"{'M' if begins else 'L'}{across:g} {up:g}")
        numbers.append((_short(at), _short(point.value)))
        tip = line.tip and f"{line.tip}, {number(at)} {unit}: {number(point.value)}"
        marks.append(Mark(across, up, tip))
        begins = False
    first, last = numbers[0][1], numbers[-1][1]
    return Curve(
        line.label, line.color % COLORS, "".join(path), marks if len(marks) <= MARKED else [],
        json.dumps(numbers, separators=(",", ":")),
        f"{line.label} from {number(first)} to {number(last)}", line.tip,
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _time(longest: float) -> tuple[float, str]:
    return next((factor, unit) for least, factor, unit in _TIMES if longest >= least)


def _round(low: float, high: float, parts: int) -> list[float]:
    """Return about `parts` values in a range, at equal distances.

    The distance is 1, 2 or 5 times a power of ten, and the values are multiples of it.
    """
    rough = (high - low) / parts
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [_short(step * place)
            for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _powers(
    low: float, high: float, base: int, factors: Sequence[int], every: int
) -> list[float]:
    """Return the values in a range that are one of `factors` times a power of `base`.

    Only powers whose exponent is a multiple of `every` are used.
    """
    powers = range(math.floor(math.log(low, base)), math.ceil(math.log(high, base)) + 1)
    values = (factor * float(base) ** power for power in powers if power % every == 0
              for factor in factors)
    return [value for value in values if low <= value <= high]


def number(value: float, digits: int = 4) -> str:
    """Return `value` in the usual notation, such as 2,500 or 0.05."""
    whole = value == round(value) and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"
