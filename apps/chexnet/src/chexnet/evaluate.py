"""The command `evaluate`: scores of a checkpoint for each finding, next to published scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from chexnet import crops, inputs, restore, scores
from chexnet.findings import NOTICE, REFERENCE, SOURCES, better
from chexnet.inputs import Loader
from chexnet.restore import Restored
from chexnet.scores import Array, Interval, Intervals, Scores
from chexnet.settings import EvaluateSettings
from trainkit import plots
from trainkit.console import Counter
from trainkit.data.dataset import Dataset
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.strategy import Strategy
from trainkit.tensorflow.start import start

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10  # smallest number of images in a bin of the calibration curve


def main(settings: EvaluateSettings) -> None:
    """Print the scores of a checkpoint on a split; draw them if `settings.plot` is given.

    Raises:
        DataError: the run has no checkpoint, or the data has other findings.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    ranks = start("single", device=settings.device)
    with tf.device(ranks.device):
        model = restore.open_network(settings.out, settings.checkpoint)
        dataset = inputs.open_images(settings.data)
        if dataset.classes != model.findings or dataset.kind.labels != "multi":
            raise DataError(
                f"{settings.data} has the findings {', '.join(dataset.classes)}, and the network"
                f" was trained on {', '.join(model.findings)}",
                code="data-mismatch",
            )
        split = settings.split or next(
            (name for name in ("test", "val") if name in dataset.splits), dataset.evaluation_split()
        )
        labels, logits = predict_logits(model, dataset, split, settings)
    found = scores.score(labels, logits)
    intervals = scores.intervals(labels, logits, seed=settings.seed, draws=settings.draws)
    if settings.plot is not None:
        with plots.drawing():
            plots.save(draw(labels, logits, model.findings, found), settings.plot)
    if settings.json:
        print(json.dumps(json_document(labels, logits, model, split, found, intervals)))
        return
    print(f"{split}: {found.images} images, step {model.step}"
          f"{', ten crops of each' if settings.ten_crop else ''}")
    print("\n".join(table(labels, logits, model.findings, found, intervals)))
    print(NOTICE)
    if settings.plot is not None:
        print(settings.plot)


def predict_logits(
    model: Restored, dataset: Dataset, split: str, settings: EvaluateSettings
) -> tuple[Array, Array]:
    """Return the labels and the logits of all images of a split, (n, findings) each.

    With `--ten-crop`, the logits are means over ten crops of an image.
    """
    records = dataset.records(split)
    loader = Loader(
        records, size=model.size, channels=model.channels, augment=False,
        plan=Plan(len(records), settings.batch_size, settings.seed, training=False),
        strategy=Strategy(), decoders=settings.decoders,
        windows=crops.ten_crops() if settings.ten_crop else None,
    )
    predict = tf.function(
        lambda images: model.network.logits(images, training=False),
        input_signature=[tf.TensorSpec((None, model.size, model.size, model.channels), tf.uint8)],
    )
    labels, logits = [], []
    with Counter("evaluating", len(records), "images", stream=sys.stderr) as done:
        for batch in loader.epoch(0):
            shape = batch.images.shape
            found = predict(tf.reshape(batch.images, (-1, *shape[-3:]))).numpy()
            logits.append(found.reshape(shape[0], -1, found.shape[-1]).mean(1))
            labels.append(batch.labels.numpy())
            done.add(shape[0])
    return np.concatenate(labels).astype(float), np.concatenate(logits).astype(float)


def probabilities(logits: Array) -> Array:
    """Return the sigmoid of `logits`."""
    found: Array = 0.5 * (1 + np.tanh(0.5 * logits))  # this form of the sigmoid does not overflow
    return found


def json_document(
    labels: Array, logits: Array, model: Restored, split: str, found: Scores,
    intervals: Intervals,
) -> dict[str, Any]:
    """Return the scores as a JSON document."""
    probability = probabilities(logits)
    return {
        "split": split, "images": found.images, "step": model.step, "notice": NOTICE,
        "auroc": found.mean_auroc, "auroc_defined": found.defined, "interval": intervals.mean,
        "accuracy": found.accuracy, "better_than": better(model.findings, found.auroc),
        "average_precision": scores.mean(found.precision),
        "findings": {
            name: {
                "positive": int(labels[:, at].sum()), "auroc": found.auroc[at],
                "interval": intervals.findings[at], "average_precision": found.precision[at],
                "brier": scores.brier(labels[:, at], probability[:, at]),
                "reliability": scores.reliability(labels[:, at], probability[:, at]),
                "reference": dict(zip(SOURCES, REFERENCE[name], strict=True))
                if name in REFERENCE else None,
            }
            for at, name in enumerate(model.findings)
        },
    }


def table(
    labels: Array, logits: Array, findings: tuple[str, ...], found: Scores, intervals: Intervals,
) -> Iterator[str]:
    """Yield the lines of a table of the scores."""
    known = [name for name in findings if name in REFERENCE]
    heads = "".join(f"{source:>25}" for source in SOURCES) if known else ""
    yield f"{'':<20}{'positive':>9}{'AUROC':>8}{'95 %':>18}{'precision':>11}{'Brier':>8}{heads}"
    probability = probabilities(logits)
    for at, name in enumerate(findings):
        others = "".join(f"{value:>25.4f}" for value in REFERENCE.get(name, ()))
        yield (f"{name:<20}{int(labels[:, at].sum()):>9}{_score_text(found.auroc[at]):>8}"
               f"{_interval_text(intervals.findings[at]):>18}"
               f"{_score_text(found.precision[at]):>11}"
               f"{scores.brier(labels[:, at], probability[:, at]):>8.4f}{others}")
    over = "" if found.defined == len(findings) else f" over {found.defined} of {len(findings)}"
    means = "".join(
        f"{sum(REFERENCE[name][at] for name in known) / len(known):>25.4f}"
        for at in range(len(SOURCES))
    ) if known else ""
    yield (f"{'mean' + over:<20}{'':>9}{_score_text(found.mean_auroc):>8}"
           f"{_interval_text(intervals.mean):>18}{_score_text(scores.mean(found.precision)):>11}{'':>8}{means}")
    for source, (count, of) in better(findings, found.auroc).items():
        yield f"better than {source} in {count} of {of} findings"
    yield f"accuracy at probability 0.5: {found.accuracy:.2%}"


def _interval_text(interval: Interval | None) -> str:
    return f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else ""


def _score_text(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def draw(labels: Array, logits: Array, findings: tuple[str, ...], found: Scores) -> Figure:
    """Return a figure with the ROC curves and the calibration of each finding."""
    import matplotlib as mpl
    from matplotlib.figure import Figure  # pyplot would look for a display

    mpl.rcParams["svg.hashsalt"] = "trimaran"  # equal scores give equal files
    figure = Figure(figsize=(9, 4.4), dpi=120, layout="constrained")
    curves, calibration = figure.subplots(1, 2)
    probability = probabilities(logits)
    for at, name in enumerate(findings):
        colour = f"C{at % 10}"
        style = "-" if at < 10 else "--"
        if found.auroc[at] is not None:
            curves.plot(*scores.roc(labels[:, at], logits[:, at]), style, color=colour,
                        linewidth=1.2, label=f"{name} {found.auroc[at]:.3f}")
        bins = [
            one for one in scores.reliability(labels[:, at], probability[:, at]) if one[-1] >= FEW
        ]
        if bins:
            said, found_in, images = zip(*bins, strict=True)
            calibration.plot(said, found_in, style, color=colour, linewidth=0.6, alpha=0.5)
            areas = [3 + 90 * one / len(labels) for one in images]
            calibration.scatter(said, found_in, areas, colour)
    _square(curves, "ROC (AUROC)", "false positive rate", "true positive rate")
    _square(calibration, f"calibration (bins of {FEW} and more images)", "predicted probability",
            "part with the finding")
    figure.legend(*curves.get_legend_handles_labels(), loc="outside right center", frameon=False,
                  fontsize="small")
    return figure


def _square(axes: Axes, title: str, across: str, up: str) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="dotted")
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_aspect("equal")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
