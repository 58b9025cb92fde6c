"""Draw the curves of a run over its steps as SVG and PNG."""

from __future__ import annotations

import io
import math
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimaran.report.charts import number
from trimaran.report.panels import MARKED, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, whose colours differ for readers with any colour vision."""

WIDTH, HEIGHT = 4.0, 3.6
LEFT, RIGHT, TOP, BOTTOM = 0.75, 0.15, 0.8, 0.6
"""Size of a panel and margins of its axes, in inches. They are fixed, because an automatic layout
takes longer than drawing."""


def get_ready() -> None:
    """Import Matplotlib in a thread, because the import takes half of the time of a report."""
    threading.Thread(target=_import, daemon=True).start()


@dataclass(frozen=True)
class Picture:
    """A picture as SVG and as PNG."""

    svg: bytes
    png: bytes


def draw(title: str, panels: Sequence[Panel]) -> Picture | None:
    """Return a picture of the panels side by side; None: there are no panels."""
    if not panels:
        return None
    with _defaults():
        from matplotlib.figure import Figure

        whole = WIDTH * len(panels)
        figure = Figure(figsize=(whole, HEIGHT))
        for place, panel in enumerate(panels):
            _panel(figure.add_axes((
                (place * WIDTH + LEFT) / whole, BOTTOM / HEIGHT,
                (WIDTH - LEFT - RIGHT) / whole, (HEIGHT - TOP - BOTTOM) / HEIGHT,
            )), panel)
        figure.suptitle(title)
        return _saved(figure)


def speedup(title: str, points: Sequence[tuple[int, float]]) -> Picture:
    """Return a picture of the speed-up of a scaling series, and of a linear speed-up.

    Args:
        title: title of the picture.
        points: (number of nodes, speed-up over the first point), ordered by nodes.
    """
    with _defaults():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, HEIGHT))
        axes = figure.add_axes((
            LEFT / 5, BOTTOM / HEIGHT, (5 - LEFT - RIGHT) / 5, (HEIGHT - TOP - BOTTOM) / HEIGHT,
        ))
        nodes, speedups = zip(*points, strict=True)
        axes.plot(nodes, [count / nodes[0] for count in nodes], color="0.6", linestyle="--",
                  label="linear")
        axes.plot(nodes, speedups, color=COLORS[0], marker="o", markersize=4, label="measured")
        axes.set(title=title, xlabel="nodes", ylabel="speed-up", ylim=(0, None))
        axes.set_xticks(nodes)
        _plain(axes.xaxis)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        return _saved(figure)


def _saved(figure: Figure) -> Picture:
    svg, png = io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.savefig(png, format="png", dpi=110)
    return Picture(svg.getvalue(), png.getvalue())


def _import() -> None:
    """Import Matplotlib without the backend in the environment variable MPLBACKEND."""
    # A notebook sets a backend whose package may be missing here; no backend is needed.
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl  # noqa: F401
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    import matplotlib.figure  # noqa: F401


def _defaults() -> AbstractContextManager[None]:
    """Return a context with the default settings, so that equal runs give equal files."""
    _import()
    import matplotlib as mpl

    own = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
    # The salt makes names in the SVG reproducible; `$` in a title does not begin a formula.
    return mpl.rc_context(
        {**own, "svg.hashsalt": "trimaran", "text.parse_math": False}  # type: ignore[dict-item]
    )


def _panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    for line in panel.lines:
        axes.plot(
            [point.step for point in line.points], [point.value for point in line.points],
            label=line.label, color=COLORS[line.color % len(COLORS)],
            marker="o" if len(line.points) <= MARKED else None, markersize=4,
        )
    axes.set_title(panel.title, y=1.0)
    axes.set_xlabel("step")
    axes.xaxis.set_label_coords(0.5, -0.15)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _plain(axes.xaxis)
    low, high = panel.span
    if panel.logarithmic:
        axes.set_yscale("log")  # ticks at 1, 2 and 5 of each decade, for up to three decades
        subs = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.axis == "from-zero" and low >= 0:
        axes.set_ylim(0, 1.05 * high or 1)
    _plain(axes.yaxis)
    axes.grid(alpha=0.3)
    if len(panel.lines) > 1 or panel.lines[0].color:
        axes.legend(frameon=False)


def _plain(axis: Axis) -> None:
    """Write ticks in the usual notation, such as 2,500 or 0.05, without a common factor."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, digits=6)))
