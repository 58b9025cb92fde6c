"""Draw times and bus bandwidths against the size: the command `plot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collectives import results
from collectives.fit import Fit
from collectives.operations import OPERATIONS
from collectives.results import Results
from collectives.settings import shown_size
from trainkit import plots
from trainkit.common_options import PlotSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = 32
"""Number of points of a fitted line, which is curved on logarithmic axes."""


def main(settings: PlotSettings) -> None:
    """Draw the runs, and print the path of the picture.

    Raises:
        DataError: a folder has no finished measurement.
    """
    assert settings.out  # noqa: S101 - `settings.check` refuses None
    runs = [results.read(folder) for folder in settings.out]
    path = settings.to or settings.out[0] / "plot.png"
    with plots.drawing():
        plots.save(draw(runs, settings.out), path)
    print(path)


def draw(runs: Sequence[Results], folders: Sequence[Path]) -> Figure:
    """Return a figure of time and bus bandwidth: a colour per operation, a line style per run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would look for a display
    from matplotlib.lines import Line2D

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal runs give equal files
    figure = Figure(figsize=(11, 5.6), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    _prepare(left, "time, us (dots: median; lines: fit)")
    _prepare(right, "bus bandwidth, GB/s")
    names = [
        name for name, operation in OPERATIONS.items()
        if operation.is_sized and any(one.operation == name for run in runs for one in run.points)
    ]
    colours = dict(zip(names, plots.COLOURS * 2, strict=False))
    markers = dict(zip(names, "oooooooss", strict=False))
    for run, stroke in zip(runs, plots.STROKES * len(runs), strict=False):
        for name, colour in colours.items():
            points = [one for one in run.points if one.operation == name]
            sizes = [one.bytes for one in points]
            left.plot(sizes, [one.seconds.median * 1e6 for one in points], linestyle="none",
                      marker=markers[name], markersize=3, color=colour)
            right.plot(sizes, [one.busbw_gb_s or 0.0 for one in points], linestyle=stroke,
                       marker=markers[name], markersize=3, linewidth=1, color=colour)
        for fit in run.fits:
            for line in fitted(fit):
                left.plot(*line, color=colours[fit.operation], linewidth=1, linestyle=stroke)
    handles = [
        Line2D([], [], color=colour, marker=markers[name], markersize=4, label=name)
        for name, colour in colours.items()
    ]
    if len(runs) > 1:
        handles += [
            Line2D([], [], color="grey", linestyle=stroke, label=str(folder))
            for folder, stroke in zip(folders, plots.STROKES * len(runs), strict=False)
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(_title(runs[0]) if len(runs) == 1 else "", fontsize="medium")
    return figure


def fitted(fit: Fit) -> Iterator[tuple[list[float], list[float]]]:
    """Yield a line for each range of sizes in a fit: sizes in bytes, fitted times in microseconds.

    In each range of sizes, another latency and another bandwidth were fitted.
    """
    for one in fit.ranges:
        ratio = one.to_bytes / one.from_bytes
        sizes = [one.from_bytes * ratio ** (step / STEPS) for step in range(STEPS + 1)]
        slope = 0.0 if one.gb_s is None else 1e-3 / one.gb_s  # microseconds per byte
        yield sizes, [one.alpha_us + slope * size for size in sizes]


def _prepare(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: shown_size(int(size)) if size >= 1 else "")
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _title(run: Results) -> str:
    nodes = len(set(run.hosts))
    return (f"{run.library} ({run.backend}), {run.dtype}, {run.ranks} ranks on "
            f"{nodes} node{'s' if nodes > 1 else ''}")
