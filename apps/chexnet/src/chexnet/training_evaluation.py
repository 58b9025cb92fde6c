"""The evaluation within a training: scores on the evaluation images of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from chexnet import method, scores
from chexnet.findings import better
from chexnet.inputs import Loader
from chexnet.scores import Array
from chexnet.state import Trained
from trainkit import metrics
from trainkit.journal import Evaluation
from trainkit.session import Session


def evaluate(trained: Trained, session: Session, loader: Loader) -> Evaluation | None:
    """Return the scores on the images of `loader`; None if a signal interrupts the evaluation."""
    trained.before_save()
    ranks, network = trained.ranks, trained.network
    logits, labels = [], []
    with session.counter("evaluating", loader.plan.steps, "batches") as done:
        for batch in loader.epoch(0):
            if ranks.any(session.stop_asked):
                return None
            if len(batch.images):
                logits.append(trained.predict(batch.images).numpy())
                labels.append(batch.labels.numpy())
            done.add()
    width = network.head.output_shape[-1]
    nothing = np.zeros((0, width))
    every = ranks.gather((np.concatenate([nothing, *labels]), np.concatenate([nothing, *logits])))
    truth, found = (np.concatenate([one[at] for one in every]) for at in (0, 1))
    if trained.data.exclusive:
        return score_classes(truth, found)
    return score_findings(truth, found, trained.data.findings)


def score_findings(truth: Array, found: Array, names: Sequence[str]) -> Evaluation:
    """Return the scores of images with any number of findings.

    Args:
        truth: 1 for each finding of an image, else 0, (n, findings).
        found: logits, (n, findings).
        names: names of the findings.
    """
    width = truth.shape[1]
    alike = tf.ones((2, width), tf.float64)
    loss = float(tf.reduce_mean(method.losses(tf.constant(found), tf.constant(truth), alike)))
    given = scores.score(truth, found)
    values = {metrics.EVAL_LOSS: loss, metrics.EVAL_ACCURACY: given.accuracy}
    text = f"accuracy {given.accuracy:.2%}  loss {loss:.4f}"
    if given.mean_auroc is not None:
        values["eval_auroc"] = given.mean_auroc
        over = "" if given.defined == width else f" over {given.defined} of {width} findings"
        text = f"AUROC {given.mean_auroc:.4f}{over}  {text}"
    if (precision := scores.mean(given.precision)) is not None:
        values["eval_average_precision"] = precision
    if (others := better(names, given.auroc)):
        values["eval_better_than_chexnet"] = others["CheXNet"][0]
    return _evaluation(values, text)


def score_classes(truth: Array, found: Array) -> Evaluation:
    """Return the scores of images with one class each.

    Args:
        truth: one-hot labels, (n, classes).
        found: logits, (n, classes).
    """
    losses = method.class_losses(tf.constant(found), tf.constant(truth))
    loss = float(tf.reduce_mean(losses))
    accuracy = float((found.argmax(1) == truth.argmax(1)).mean())
    values = {metrics.EVAL_LOSS: loss, metrics.EVAL_ACCURACY: accuracy}
    return _evaluation(values, f"top-1 {accuracy:.2%}  loss {loss:.4f}")


def _evaluation(values: dict[str, float], text: str) -> Evaluation:
    return Evaluation(values, {key.removeprefix("eval_"): one for key, one in values.items()}, text)
