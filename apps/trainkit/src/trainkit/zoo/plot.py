"""Draw the rates of a benchmark as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainkit.plots import COLOURS
from trainkit.zoo.measure import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 0.38
"""Height of a bar, in units of the distance between networks; each network has two bars."""


def draw(title: str, rows: Sequence[Row]) -> Figure:
    """Return a figure of the images per second of networks, on a logarithmic axis.

    A second panel has the operations per second in percent of the fastest matrix product.

    Args:
        title: framework, device and precision.
        rows: the networks, the first one at the top.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would look for a display

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal results give equal files
    figure = Figure(figsize=(9, 1.4 + 0.42 * len(rows)), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (label, offset) in enumerate((("forward", -HEIGHT / 2), ("training", HEIGHT / 2))):
        rates = [getattr(row, label) for row in rows]
        places = [place + offset for place in range(len(rows))]
        style = {"height": HEIGHT, "color": COLOURS[number], "label": label}
        for axes, values, digits in (
            (left, [rate.images_per_second for rate in rates], "{:.3g}"),
            (right, [100 * rate.share for rate in rates], "{:.0f} %"),
        ):
            bars = axes.barh(places, values, **style)
            axes.bar_label(bars, map(digits.format, values), padding=2, fontsize=7)
    left.set_xscale("log")
    left.set_yticks(range(len(rows)), [row.name for row in rows])
    left.invert_yaxis()
    left.margins(x=0.15)
    right.margins(x=0.15)
    left.set_title("img/s, logarithmic", fontsize="medium", loc="left")
    right.set_title("share of the ceiling, %", fontsize="medium", loc="left")
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                  frameon=False)
    figure.suptitle(title, fontsize="medium")
    return figure
