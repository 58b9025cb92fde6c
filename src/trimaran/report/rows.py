"""Draw named values as SVG: one row for each name, with dots, ranges and a marked value."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimaran.report.charts import COLORS, LETTER, Axis, Tick, around
from trimaran.report.panels import DECADE

NARROW = 500
"""Maximum width in SVG units at which names are above their rows instead of to the left."""

LINE, GAP, EDGE = 15, 11, 8
"""Height of a line of text, space between two rows, and space beside the axis, in SVG units."""


class Dot(NamedTuple):
    """One value with its tooltip; `low` and `high` are the ends of its range, if it has one."""

    value: float
    tip: str
    group: str = ""
    low: float | None = None
    high: float | None = None


class Row(NamedTuple):
    """One row of the drawing.

    Attributes:
        name: name of the row.
        dots: its values.
        mark: value that is drawn with a special marker; None: no marker.
        text: text to the right of the last value.
    """

    name: str
    dots: Sequence[Dot]
    mark: float | None = None
    text: str = ""


class Table(NamedTuple):
    """The values to draw.

    Attributes:
        title: quantity and unit of the horizontal axis.
        rows: the rows, the topmost first.
        groups: the groups of the dots, in the order of their colours; empty if there is only one.
        log: whether the axis is logarithmic, if the values span a decade.
        zero: whether the axis starts at zero.
    """

    title: str
    rows: Sequence[Row]
    groups: Sequence[str] = ()
    log: bool = False
    zero: bool = False

    @property
    def values(self) -> Iterator[float]:
        """All numbers in the rows: the values, the ends of their ranges, and the marked values."""
        for row in self.rows:
            yield from (value for value in (row.mark,) if value is not None)
            for dot in row.dots:
                yield from (value for value in (dot.low, dot.value, dot.high) if value is not None)


class DrawnDot(NamedTuple):
    """A dot to draw: position, colour, tooltip and the ends of its range."""

    x: float
    color: int
    tip: str
    range: tuple[float, float] | None


class DrawnRow(NamedTuple):
    """A row to draw: lines of text from `top` down, and dots and a mark at the height `y`."""

    lines: list[str]
    top: float
    y: float
    dots: list[DrawnDot]
    mark: float | None
    text: str
    end: float


class Drawing(NamedTuple):
    """A drawing for the template.

    The names of the rows are at the x position `names`; `anchor` states whether they start or end
    there.
    """

    title: str
    width: int
    height: float
    x: list[Tick]
    rows: list[DrawnRow]
    keys: list[tuple[int, str]]
    names: float
    anchor: str
    box: tuple[float, float, float, float]


def drawing(table: Table, width: int) -> Drawing:
    """Return the plot of the rows of a table with their values, `width` SVG units wide."""
    narrow = width <= NARROW
    most = int(width * (1 if narrow else 0.45) / LETTER)
    lines = [textwrap.wrap(row.name, most) for row in table.rows]
    left = EDGE if narrow else max(len(line) for some in lines for line in some) * LETTER + 2 * EDGE
    texts = max(len(row.text) for row in table.rows) * LETTER
    axis = _axis(table, left, width - 2 * EDGE - texts)
    rows: list[DrawnRow] = []
    top = 0.0
    for row, names in zip(table.rows, lines, strict=True):
        below = len(names) * LINE + GAP / 2 if narrow else (len(names) - 1) * LINE / 2
        rows.append(_row(table, row, names, top, top + below + LINE / 2, axis))
        top += len(names) * LINE + GAP + (LINE if narrow else 0)
    used = {dot.group for row in table.rows for dot in row.dots}
    return Drawing(
        table.title, width, top + LINE + GAP, axis.spaced, rows,
        [(place % COLORS, name) for place, name in enumerate(table.groups) if name in used],
        0 if narrow else left - EDGE, "start" if narrow else "end", (left, width - EDGE, top, 0),
    )


def _axis(table: Table, left: float, right: float) -> Axis:
    low, high = min(table.values), max(table.values)
    if table.log and low > 0 and high >= DECADE * low:
        begin = min(low / 1.2, 10.0 ** math.floor(math.log10(low)))  # a tick before each value
        return Axis(begin, high * 1.2, left + EDGE, right, log=True)
    return Axis(*around(low, high, table.zero), left + EDGE, right)


def _row(
    table: Table, row: Row, names: list[str], top: float, y: float, axis: Axis
) -> DrawnRow:
    groups = list(table.groups)
    dots = [
        DrawnDot(
            axis.place(dot.value), groups.index(dot.group) % COLORS if groups else 0, dot.tip,
            None if dot.low is None or dot.high is None
            else (axis.place(dot.low), axis.place(dot.high)),
        ) for dot in row.dots
    ]
    end = max(place for dot in dots for place in (dot.x, *(dot.range or ())))
    mark = None if row.mark is None else axis.place(row.mark)
    if mark is not None and end < mark < end + 2 * GAP + LETTER * len(row.text):
        end = mark  # otherwise the marked value would overlap the text
    return DrawnRow(names, top, y, dots, mark, row.text, end)
