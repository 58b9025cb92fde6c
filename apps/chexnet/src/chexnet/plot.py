"""Curves of one or several runs over epochs, as a picture: the command `plot`."""

from __future__ import annotations

from trainkit import metrics, plots
from trainkit.commands import PlotSettings
from trainkit.plots import Look, Panel

LOOK = Look(
    panels=(
        Panel("loss (dots: evaluation)", (metrics.TRAIN_LOSS, metrics.EVAL_LOSS)),
        Panel("mean AUROC", ("eval_auroc",)),
        Panel("mean of the average precisions", ("eval_average_precision",)),
        Panel("accuracy, %", (metrics.EVAL_ACCURACY,), 100),
        Panel("learning rate", (metrics.LEARNING_RATE,), bottom=0),
        Panel("throughput, img/s", (metrics.THROUGHPUT,), bottom=0),
    ),
    noisy=frozenset({metrics.TRAIN_LOSS, metrics.THROUGHPUT}),
    dotted=frozenset({metrics.EVAL_LOSS, metrics.EVAL_ACCURACY, "eval_auroc",
                      "eval_average_precision"}),
    best=("eval_auroc", "best AUROC {:.4f}"),
)


def main(settings: PlotSettings) -> None:
    """Draw the runs, and say where the picture is."""
    plots.main(settings, LOOK)
