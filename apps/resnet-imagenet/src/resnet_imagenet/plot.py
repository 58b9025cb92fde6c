"""Curves of one or several runs over epochs, as a picture: the command `plot`."""

from __future__ import annotations

from trainkit import metrics, plots
from trainkit.commands import PlotSettings
from trainkit.plots import Look, Panel

LOOK = Look(
    panels=(
        Panel("loss: training (line), evaluation (dots)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("evaluation: top-1, %", (metrics.EVAL_ACCURACY,), 100),
        Panel("evaluation: top-5, %", (metrics.EVAL_ACCURACY_TOP5,), 100),
        Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
        Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
        Panel("time spent waiting for data, %", (metrics.DATA_WAIT,), 100, bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, metrics.THROUGHPUT, metrics.DATA_WAIT}),
    dotted=frozenset({metrics.EVAL_LOSS, metrics.EVAL_ACCURACY, metrics.EVAL_ACCURACY_TOP5}),
    best=(metrics.EVAL_ACCURACY, "best top-1 {:.2%}"),
)


def main(settings: PlotSettings) -> None:
    """Draw the runs, and say where the picture is."""
    plots.main(settings, LOOK)
