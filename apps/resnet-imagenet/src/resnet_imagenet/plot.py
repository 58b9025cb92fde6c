"""Curves of one or several runs over epochs, as a picture: the command `plot`."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from resnet_imagenet.settings import PlotSettings
from trainkit import atomic, curves, metrics
from trainkit.curves import Curve, RunCurves
from trainkit.exits import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which readers with any colour vision tell apart; after them the
# same with other strokes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
Stroke = Literal["solid", "dashed", "dotted", "dashdot"]
STROKES: tuple[Stroke, ...] = ("solid", "dashed", "dotted", "dashdot")
STRETCHES = 150
"""Noisy curves are drawn as means over so many parts of the axis, all points faint behind."""


class Panel(NamedTuple):
    """One pair of axes: its title, its metrics, the factor to its unit, and its lower end."""

    title: str
    keys: tuple[str, ...]
    factor: float = 1.0
    bottom: float | None = None


PANELS = (
    Panel("loss: training (line), evaluation (dots)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
    Panel("evaluation: top-1, %", (metrics.EVAL_ACCURACY,), 100),
    Panel("evaluation: top-5, %", (metrics.EVAL_ACCURACY_TOP5,), 100),
    Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
    Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
    Panel("time spent waiting for data, %", (metrics.DATA_WAIT,), 100, bottom=0),
)
UNDATED: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
NOISY = {metrics.TRAIN_LOSS, metrics.THROUGHPUT, metrics.DATA_WAIT}
AT_EVALUATION = {metrics.EVAL_LOSS, metrics.EVAL_ACCURACY, metrics.EVAL_ACCURACY_TOP5}


def main(settings: PlotSettings) -> None:
    """Draw the runs, and say where the picture is."""
    assert settings.out  # noqa: S101 - `settings.check` saw to it
    runs = [curves.read(folder) for folder in settings.out]
    if not any(run.curves for run in runs):
        raise DataError(f"{', '.join(map(str, settings.out))}: no measurements yet")
    # Without --to it is the run's own picture, which the next one replaces.
    path = settings.to or settings.out[0] / "plot.png"
    atomic.check_folder(path)
    with tempfile.TemporaryDirectory() as folder, atomic.replacing(path) as file:
        # matplotlib's list of fonts, which it would write to the user's home.
        os.environ.setdefault("MPLCONFIGDIR", folder)
        # That of a notebook is not here, and a file needs none.
        os.environ.pop("MPLBACKEND", None)
        draw(runs).savefig(file, format=path.suffix[1:], metadata=UNDATED.get(path.suffix))
    print(path)


def draw(runs: Sequence[RunCurves]) -> Figure:
    """Return the figure: a panel per metric, a colour per run."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # not pyplot, which looks for a display
    from matplotlib.lines import Line2D

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # the same run gives the same file
    figure = Figure(figsize=(12, 6.8), dpi=120, layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        axes.set_title(panel.title, fontsize="medium", loc="left")
        axes.set_xlabel("epochs")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        draw_panel(axes, panel, runs)
    handles = [
        Line2D([], [], color=colour, linestyle=stroke, linewidth=2, label=label)
        for (colour, stroke), label in zip(styles(), labels(runs), strict=False)
    ]
    figure.legend(handles=handles, loc="outside lower center", frameon=False)
    return figure


def draw_panel(axes: Axes, panel: Panel, runs: Sequence[RunCurves]) -> None:
    """Draw the metrics of `panel` for all `runs`, or say that it has no values."""
    end = max(run.epochs for run in runs)
    for run, (colour, stroke) in zip(runs, styles(), strict=False):
        for key in panel.keys:
            curve = run.curve(key)
            curve = Curve(curve.epochs, tuple(value * panel.factor for value in curve.values))
            look: dict[str, Any] = {"color": colour, "linestyle": stroke}
            if key in NOISY:
                whole, curve = curve, mean_curve(curve, end / STRETCHES)
                if len(curve.values) < len(whole.values):
                    axes.plot(whole.epochs, whole.values, color=colour, alpha=0.15, linewidth=0.6)
            if key in AT_EVALUATION or len(curve.values) == 1:
                look |= {"marker": "o", "markersize": 3, "linewidth": 1}
            axes.plot(curve.epochs, curve.values, **look)
    if not any(run.curve(key).values for run in runs for key in panel.keys):
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="grey")
        axes.set_yticks([])
    axes.set_xlim(0, end * 1.01)
    axes.set_ylim(bottom=panel.bottom)


def mean_curve(curve: Curve, width: float) -> Curve:
    """Return the means of `curve` over stretches of `width` epochs; a sparse one stays as it is.

    Stretches without points are left out.
    """
    if not curve.epochs or len(curve.epochs) * width < 2 * curve.epochs[-1]:
        return curve
    pairs = zip(curve.epochs, curve.values, strict=True)
    stretches = [list(s) for _, s in itertools.groupby(pairs, lambda pair: pair[0] // width)]
    if len(stretches) > 1 and len(stretches[-1]) < len(stretches[-2]) / 2:
        stretches[-2:] = [stretches[-2] + stretches[-1]]  # a mean of few is a jag at the end
    return Curve(
        tuple(fmean(epoch for epoch, _ in stretch) for stretch in stretches),
        tuple(fmean(value for _, value in stretch) for stretch in stretches),
    )


def styles() -> Iterator[tuple[str, Stroke]]:
    """Yield colour and stroke of one run after the other, without end."""
    pairs = [(colour, stroke) for stroke in STROKES for colour in COLOURS]
    return itertools.cycle(pairs)


def labels(runs: Sequence[RunCurves]) -> list[str]:
    """Return what the legend says of each run: its name, how far it is, its best top-1."""
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
        if best := run.curve(metrics.EVAL_ACCURACY).values:
            parts.append(f"best top-1 {max(best):.2%}")
        said.append("; ".join(parts))
    return said


def names(runs: Sequence[RunCurves]) -> list[str]:
    """Return the shortest paths that tell the folders of `runs` apart."""
    folders = [run.folder.resolve() for run in runs]
    common = os.path.commonpath([folder.parent for folder in folders])
    return [str(folder.relative_to(common)) for folder in folders]
