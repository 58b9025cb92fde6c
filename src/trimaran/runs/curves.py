"""The curves of a run over its steps, in the panels that its app's card names, as SVG and PNG."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimaran.recipes.card import AxisKind, Card
from trimaran.runs.verdict import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which readers with any colour vision tell apart."""

MARKED = 30
"""Points up to which each is marked: a line of one point is not seen otherwise."""

LARGEST = 1e30
"""Beyond, nothing is drawn: it is no loss and no speed, and an axis up to it shows nothing else."""

DECADE = 10.0


class Line(NamedTuple):
    """One key of `metrics.jsonl` as a line."""

    key: str
    label: str
    factor: float


class Panel(NamedTuple):
    """Axes with a title, and their lines; `log`: logarithmic where the values span a decade."""

    title: str
    axis: AxisKind
    lines: list[Line]


def panels_of(card: Card) -> list[Panel]:
    """Return the panels that a card names, in its order."""
    found: dict[str, Panel] = {}
    for name, metric in card.metrics.items():
        if metric.panel is not None:
            panel = found.setdefault(metric.panel, Panel(metric.panel, metric.axis, []))
            panel.lines.append(Line(metric.key, metric.label or name, metric.factor))
    return list(found.values())


@dataclass(frozen=True)
class Picture:
    """The same drawing twice."""

    svg: bytes
    png: bytes


def draw(title: str, events: Sequence[Event], card: Card) -> Picture | None:
    """Draw a panel for each thing that the run has reported; None where it is none of them."""
    panels = [
        (panel, found)
        for panel in panels_of(card)
        if (found := [(line, points) for line in panel.lines if (points := _points(events, line))])
    ]
    if not panels:
        return None
    with _defaults():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4 * len(panels), 3.6), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (panel, found) in zip(row, panels, strict=True):
            _panel(axes, panel, found)
        figure.suptitle(title)
        return _saved(figure)


def speedup(title: str, points: Sequence[tuple[int, float]]) -> Picture:
    """Draw the speed-up of a scaling series over its nodes, beside what is possible at the most.

    Args:
        title: of the drawing.
        points: nodes and speed-up over the first of them, in the order of the nodes.
    """
    with _defaults():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3.6), layout="constrained")
        axes = figure.subplots()
        nodes, found = zip(*points, strict=True)
        axes.plot(nodes, [count / nodes[0] for count in nodes], color="0.6", linestyle="--",
                  label="linear")
        axes.plot(nodes, found, color=COLORS[0], marker="o", markersize=4, label="measured")
        axes.set(title=title, xlabel="nodes", ylabel="speed-up", ylim=(0, None))
        axes.set_xticks(nodes)
        _plain(axes.xaxis)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        return _saved(figure)


def _saved(figure: Figure) -> Picture:
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # that of the one is good for the other
    figure.savefig(png, format="png", dpi=110)
    return Picture(svg.getvalue(), png.getvalue())


def _defaults() -> AbstractContextManager[None]:
    """Return Matplotlib's own settings: the same run gives the same file for everybody."""
    # That of a notebook is no backend where the notebook's packages are not, and none is needed.
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    own = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
    # The salt makes the names within the SVG the same each time; `$` in a title is no formula.
    return mpl.rc_context(
        {**own, "svg.hashsalt": "trimaran", "text.parse_math": False}  # type: ignore[dict-item]
    )


def _points(events: Sequence[Event], line: Line) -> list[tuple[int, float]]:
    """Return steps and values; a value that is no number leaves a gap in the line."""
    points = [
        (event.number("step") or 0, math.nan if value is None else value * line.factor)
        for event in events
        if event.key == line.key
        for value in [event.finite]
    ]
    points = [(step, value) for step, value in points if 0 <= step < LARGEST]
    points = [(step, value if abs(value) < LARGEST else math.nan) for step, value in points]
    return points if any(math.isfinite(value) for _, value in points) else []


def _panel(axes: Axes, panel: Panel, found: list[tuple[Line, list[tuple[int, float]]]]) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, (line, points) in enumerate(found):
        steps, values = zip(*points, strict=True)
        axes.plot(
            steps, values, label=line.label, color=COLORS[number % len(COLORS)],
            marker="o" if len(points) <= MARKED else None, markersize=4,
        )
    axes.set(title=panel.title, xlabel="step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _plain(axes.xaxis)
    drawn = [value for _, points in found for _, value in points if math.isfinite(value)]
    low, high = min(drawn), max(drawn)
    if panel.axis == "log" and low > 0 and high >= DECADE * low:
        _logarithmic(axes, decades=math.log10(high / low))
    if panel.axis == "from-zero" and low >= 0:
        axes.set_ylim(0, 1.05 * high or 1)
    _plain(axes.yaxis)
    axes.grid(alpha=0.3)
    if len(panel.lines) > 1:
        axes.legend(frameon=False)


def _logarithmic(axes: Axes, decades: float) -> None:
    """Make the axis logarithmic, with ticks at 1, 2 and 5 of each decade while these are few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _plain(axis: Axis) -> None:
    """Write numbers as people do: 2,500 and 0.05, not 2.5 and `x10^3` in a corner."""
    from matplotlib.ticker import FuncFormatter

    def text(value: float, place: int | None) -> str:
        whole = value == round(value) and abs(value) < 1e15
        return f"{value:,.0f}" if whole else f"{value:g}"

    axis.set_major_formatter(FuncFormatter(text))
