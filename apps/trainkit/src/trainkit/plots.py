"""Draw the curves of one or several runs over epochs: the command `plot` of every app."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trainkit import atomic, curves, metrics
from trainkit.common_options import PlotSettings
from trainkit.curves import Curve, RunCurves
from trainkit.exits import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which are distinct for any colour vision; further runs have the
# same colours with other line styles.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
Stroke = Literal["solid", "dashed", "dotted", "dashdot"]
STROKES: tuple[Stroke, ...] = ("solid", "dashed", "dotted", "dashdot")
STRETCHES = 150
"""Number of intervals into which a noisy curve is divided. The means of the intervals are drawn
clearly, and the measured values are drawn faintly."""
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


class Panel(NamedTuple):
    """One diagram: title, keys of its metrics, factor for their values, lower end of the y axis."""

    title: str
    keys: tuple[str, ...]
    factor: float = 1.0
    bottom: float | None = None


@dataclass(frozen=True)
class Look:
    """The content of an app's plot.

    Attributes:
        panels: an even number of panels, drawn in two rows.
        noisy: keys of noisy metrics, for which means over intervals are drawn.
        dotted: keys of metrics that are measured rarely, and are therefore drawn with dots.
        best: key of the metric whose best value the legend shows, and the format of that value.
        thin: keys of metrics for comparison, which are drawn faintly.
        lowest: whether the best value is the lowest one.
    """

    panels: tuple[Panel, ...]
    noisy: frozenset[str]
    dotted: frozenset[str]
    best: tuple[str, str]
    thin: frozenset[str] = frozenset()
    lowest: bool = False


def main(settings: PlotSettings, look: Look) -> None:
    """Draw the runs, and print the path of the picture.

    Raises:
        DataError: a folder has no run, or no run has measurements.
    """
    assert settings.out  # noqa: S101 - `settings.check` refuses None
    runs = [curves.read(folder) for folder in settings.out]
    if not any(run.curves for run in runs):
        raise DataError(
            f"{', '.join(map(str, settings.out))}: no measurements yet", code="metrics-missing"
        )
    # Without --to, the picture of the run is replaced.
    path = settings.to or settings.out[0] / "plot.png"
    with drawing():
        save(draw(runs, look), path)
    print(path)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Configure matplotlib to draw into files only, and to write nothing to the home folder."""
    with tempfile.TemporaryDirectory() as folder:
        # matplotlib writes its font cache to this folder.
        os.environ.setdefault("MPLCONFIGDIR", folder)
        # A notebook may set a backend that is not installed; drawing into files needs none.
        os.environ.pop("MPLBACKEND", None)
        if sys.modules.get("matplotlib", sys) is None:  # hidden from Keras by trainkit.tensorflow
            del sys.modules["matplotlib"]
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure as .png, .svg or .pdf; equal figures give equal bytes."""
    atomic.check_folder(path)
    with atomic.replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:], metadata=UNDATED.get(path.suffix))


def draw(runs: Sequence[RunCurves], look: Look) -> Figure:
    """Return a figure with the panels of `look`, and with one colour and line style per run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would look for a display
    from matplotlib.lines import Line2D

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal runs give equal files
    columns = len(look.panels) // 2
    figure = Figure(figsize=(4 * columns, 6.8), dpi=120, layout="constrained")
    for axes, panel in zip(figure.subplots(2, columns).flat, look.panels, strict=True):
        axes.set_title(panel.title, fontsize="medium", loc="left")
        axes.set_xlabel("epochs")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        draw_panel(axes, panel, runs, look)
    handles = [
        Line2D([], [], color=colour, linestyle=stroke, linewidth=2, label=label)
        for (colour, stroke), label in zip(styles(), labels(runs, look), strict=False)
    ]
    figure.legend(handles=handles, loc="outside lower center", frameon=False)
    return figure


def draw_panel(axes: Axes, panel: Panel, runs: Sequence[RunCurves], look: Look) -> None:
    """Draw the metrics of `panel` for all `runs`, or the text "no values"."""
    end = max(run.epochs for run in runs)
    for run, (colour, stroke) in zip(runs, styles(), strict=False):
        for key in panel.keys:
            curve = run.curve(key)
            curve = Curve(curve.epochs, tuple(value * panel.factor for value in curve.values))
            style: dict[str, Any] = {"color": colour, "linestyle": stroke}
            if key in look.noisy:
                whole, curve = curve, mean_curve(curve, end / STRETCHES)
                if len(curve.values) < len(whole.values):
                    axes.plot(whole.epochs, whole.values, color=colour, alpha=0.15, linewidth=0.6)
            if key in look.dotted or len(curve.values) == 1:
                style |= {"marker": "o", "markersize": 3, "linewidth": 1}
            if key in look.thin:
                style |= {"alpha": 0.45, "marker": ""}
            axes.plot(curve.epochs, curve.values, **style)
    if not any(run.curve(key).values for run in runs for key in panel.keys):
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="grey")
        axes.set_yticks([])
    axes.set_xlim(0, end * 1.01)
    axes.set_ylim(bottom=panel.bottom)


def mean_curve(curve: Curve, width: float) -> Curve:
    """Return the means of `curve` over intervals of `width` epochs.

    A curve with few values per interval stays unchanged; intervals without values are skipped.
    """
    if not curve.epochs or len(curve.epochs) * width < 2 * curve.epochs[-1]:
        return curve
    pairs = zip(curve.epochs, curve.values, strict=True)
    stretches = [list(s) for _, s in itertools.groupby(pairs, lambda pair: pair[0] // width)]
    if len(stretches) > 1 and len(stretches[-1]) < len(stretches[-2]) / 2:
        stretches[-2:] = [stretches[-2] + stretches[-1]]  # a mean of few points would be noisy
    return Curve(
        tuple(fmean(epoch for epoch, _ in stretch) for stretch in stretches),
        tuple(fmean(value for _, value in stretch) for stretch in stretches),
    )


def styles() -> Iterator[tuple[str, Stroke]]:
    """Yield pairs of a colour and a line style, without end; the pairs repeat in a cycle."""
    pairs = [(colour, stroke) for stroke in STROKES for colour in COLOURS]
    return itertools.cycle(pairs)


def labels(runs: Sequence[RunCurves], look: Look) -> list[str]:
    """Return the legend of each run: its name, its progress, and the best value of a metric."""
    best, words = look.best
    states = {
        metrics.SUCCESS: "finished at epoch {:.4g}",
        metrics.ABORTED: "stopped at epoch {:.4g}",
    }
    said = []
    for run, name in zip(runs, names(runs), strict=True):
        state = states.get(run.status or "", "epoch {:.4g} so far").format(run.epochs)
        parts = [f"{name}: {state}"]
        if run.resumed:
            parts.append("continued at " + ", ".join(f"{epoch:.4g}" for epoch in run.resumed))
        if found := run.curve(best).values:
            parts.append(words.format(min(found) if look.lowest else max(found)))
        said.append("; ".join(parts))
    return said


def names(runs: Sequence[RunCurves]) -> list[str]:
    """Return the shortest paths that distinguish the folders of `runs`."""
    folders = [run.folder.resolve() for run in runs]
    common = os.path.commonpath([folder.parent for folder in folders])
    return [str(folder.relative_to(common)) for folder in folders]
