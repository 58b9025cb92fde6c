"""The evaluation: loss and accuracy on all images of a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
import tf_keras as keras

from keras_resnet.images import Split
from keras_resnet.network import Classifier
from trainkit import metrics
from trainkit.console import Counter
from trainkit.journal import Evaluation
from trainkit.session import Session
from trainkit.tensorflow.strategy import TensorFlowStrategy

Sums = Mapping[str, Any]
"""Key, one of `KEYS` -> sum over the images of a batch."""

KEYS = ("loss", "correct", "images")
"""Keys of the sums over the images of a batch: loss, correctly classified images, all images."""


class Interrupted(Exception):  # noqa: N818 - not an error: a signal ended the evaluation
    """A signal requested a stop during an evaluation."""


class Totals(keras.callbacks.Callback):  # type: ignore[misc]
    """Add the sums of all batches of an evaluation.

    Args:
        counter: progress of the evaluation, in batches.
        stopped: function that returns whether a rank received a signal to stop.

    Attributes:
        values: the sums of `KEYS` so far.
    """

    _supports_tf_logs = True

    def __init__(self, counter: Counter, stopped: Callable[[], bool]) -> None:
        super().__init__()
        self.values = [0.0] * len(KEYS)
        self._counter, self._stopped = counter, stopped

    def on_test_batch_end(self, batch: int, logs: Sums | None = None) -> None:
        """Add the sums of a batch.

        Raises:
            Interrupted: a signal requested a stop.
        """
        assert logs is not None  # noqa: S101 - Keras passes the results of the step
        self.values = [
            total + float(tf.convert_to_tensor(logs[key]))
            for total, key in zip(self.values, KEYS, strict=True)
        ]
        self._counter.add()
        if self._stopped():
            raise Interrupted


def evaluate(
    model: Classifier, batches: Any, split: Split, session: Session, ranks: TensorFlowStrategy,
    total: Callable[[list[float]], list[float]] | None,
    evaluated: Callable[[Any], Iterable[Sums]] | None,
) -> Evaluation | None:
    """Return the scores on `batches` of `split`; None if a signal interrupts the evaluation.

    Args:
        model: the network.
        batches: batches of this rank, or a distributed data set of the batches of all ranks.
        split: the images.
        session: the session of the training.
        ranks: the strategy that connects the ranks.
        total: function that adds the sums of the ranks; None if Keras adds them itself.
        evaluated: function that evaluates batches and yields the sums of each replica's share; None
            to evaluate with `model.evaluate`.
    """
    shares = 1 if evaluated is None else ranks.replicas
    with session.counter("evaluating", split.plan.steps * shares, "batches") as counter:
        totals = Totals(counter, lambda: ranks.any(session.stop_asked))
        try:
            if evaluated is None:
                model.evaluate(batches, steps=split.plan.steps, callbacks=[totals], verbose=0)
            else:
                for number, sums in enumerate(evaluated(batches)):
                    totals.on_test_batch_end(number, sums)
        except Interrupted:
            return None
    return scores(totals.values if total is None else total(totals.values))


def scores(sums: list[float]) -> Evaluation:
    """Return the scores from the sums of `KEYS` over all images."""
    loss, correct, count = sums
    found = {
        metrics.EVAL_LOSS: loss / count if count else math.nan,
        metrics.EVAL_ACCURACY: correct / count if count else math.nan,
    }
    text = f"top-1 {found[metrics.EVAL_ACCURACY]:.2%}  loss {found[metrics.EVAL_LOSS]:.4f}"
    return Evaluation(found, {key.removeprefix("eval_"): one for key, one in found.items()}, text)
