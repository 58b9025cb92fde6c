"""Run `model.fit` of Keras 2 as a training that obeys the app contract.

    fit = FitSession(session, plan, evaluate=evaluate, rate=rate)
    with session.running():
        for epoch, first in fit.epochs():
            batches = ...                           # batches of the epoch, from step `first` on
            model.fit(batches, initial_epoch=epoch, epochs=epoch + 1, callbacks=[fit], verbose=0)

The training is one call of `fit` per epoch, because a resumed epoch has fewer steps than others,
and Keras accepts only one number of steps for all epochs.

A strategy that `model.fit` does not support needs its own training loop:

    for epoch, first in fit.epochs():
        for batch in fit.steps(batches):            # batches of the epoch, from step `first` on
            fit.finish_step(results)                # sums of the step, which may be pending
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import tensorflow as tf
import tf_keras as keras

from trainkit import metrics
from trainkit.data.order import Plan
from trainkit.journal import Evaluation
from trainkit.session import Session
from trainkit.strategy import Pending

T = TypeVar("T")

STOPPING = "stopping"
"""Key in the results of a training step: number of replicas that received a signal to stop."""


class Sums:
    """The sums of a training step over all replicas, which Keras may still be computing.

    Args:
        values: the sums of the step, one scalar tensor each.
        total: function that adds the sums of all ranks; None if Keras has already added them.
    """

    def __init__(
        self, values: Iterable[tf.Tensor], total: Callable[[list[float]], list[float]] | None
    ) -> None:
        self._values, self._total = tf.stack([tf.cast(v, tf.float64) for v in values]), total

    def result(self) -> list[float]:
        """Wait for the step; return the sums of its losses and stop requests over all ranks."""
        own: list[float] = self._values.numpy().tolist()
        return own if self._total is None else self._total(own)


class Results(Protocol):
    """The interface of the results of a training step, which may still be in progress."""

    def result(self) -> Mapping[str, float]:
        """Wait for the step; return loss name -> sum of this loss over all images of the step."""
        ...


class Ready:
    """The `Results` of a training step that is already complete."""

    def __init__(self, sums: Mapping[str, float]) -> None:
        self._sums = sums

    def result(self) -> Mapping[str, float]:
        """Return loss name -> sum of this loss over all images of the step."""
        return self._sums


class Ordered:
    """`Results` as a list: the sums of the losses in the order of `keys`, then the stop request.

    The last value is 1 if a stop was requested, else 0.
    """

    def __init__(self, results: Results, keys: Iterable[str], stopping: bool) -> None:
        self._results, self._keys, self._stopping = results, keys, stopping

    def result(self) -> list[float]:
        """Wait for the step; return its sums of the losses, then 1 for a stop request, else 0."""
        sums = self._results.result()
        return [*(float(sums[key]) for key in self._keys), float(self._stopping)]


class FitSession(keras.callbacks.Callback):  # type: ignore[misc]
    """The session of a training with Keras: logs, checkpoints, evaluation, and signals.

    The training calls `model.fit`, or has its own loop, which calls `steps` and `finish_step`.

    For `model.fit`, the model's `train_step` must return a dict. For each loss (each key of
    `journal.Words.losses`), the dict contains the sum over the images of this replica. For the key
    `STOPPING`, it contains the value of `model.stopping()`, a function that `set_model` adds.

    Args:
        session: the session of the run, without Keras.
        plan: the batches of the training.
        evaluate: function that evaluates, and returns None if a signal interrupted it.
        rate: function that returns the learning rate.
        total: for `model.fit`: function that adds the sums of the ranks; None if Keras adds the
            sums of all replicas.
        stopped: for a loop without `model.fit`: function that returns whether any rank received a
            signal. By default, only signals to this rank count.
    """

    _supports_tf_logs = True  # otherwise Keras waits for the results of each step

    def __init__(
        self, session: Session, plan: Plan, *,
        evaluate: Callable[[], Evaluation | None], rate: Callable[[], float],
        total: Callable[[list[float]], list[float]] | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()
        self._stopped = stopped or (lambda: session.stop_asked)
        self._session, self._plan = session, plan
        self._stopping = tf.Variable(0.0, trainable=False)  # of this process; 1 after a signal
        self._evaluate, self._rate, self._total = evaluate, rate, total

    def epochs(self) -> Iterator[tuple[int, int]]:
        """Yield each epoch with its first step; both are counted from 0."""
        while not self._session.is_over:
            if self._session.has_steps:
                yield self._session.progress.epoch, self._session.progress.step
            else:  # a signal ended the run after the last step of an epoch, before its evaluation
                self._session.end_epoch(self._evaluate)

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches of an epoch, from the next step on; evaluate at the end of the epoch.

        The caller makes a step with each batch, and then calls `finish_step`.
        """
        self._session.begin_epoch()
        iterator = iter(batches)
        while self._session.has_steps:
            yield self._session.next_batch(iterator)
        self._session.end_epoch(self._evaluate)

    def finish_step(self, results: Results) -> None:
        """Count a step of a loop without `model.fit`.

        Args:
            results: the results of all ranks.

        Raises:
            AppError: the loss is not finite, or a signal stopped the training.
        """
        self._count(Ordered(results, self._session.journal.words.losses, self._stopped()))

    def _count(self, sums: Pending) -> None:
        session, plan = self._session, self._plan
        count = min(plan.batch, plan.samples - session.progress.step * plan.batch)
        session.finish_step(count, sums, {metrics.LEARNING_RATE: self._rate()})

    def set_model(self, model: Any) -> None:
        """Set `model.stopping` to a function that returns 1 after a signal to stop, else 0."""
        super().set_model(model)
        model.stopping = self._stopping.read_value

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the start of an epoch, unless the run resumes within it."""
        self._session.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Start the timer of a step; the measured time includes the wait for the images."""
        self._stopping.assign(float(self._session.stop_asked))
        self._session.begin_step()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Count the step.

        Raises:
            AppError: the loss is not finite, or a signal stopped the training.
        """
        assert logs is not None  # noqa: S101 - Keras passes the results of the step
        keys = [*self._session.journal.words.losses, STOPPING]
        self._count(Sums([logs[key] for key in keys], self._total))
        self.model.stop_training = not self._session.has_steps

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Evaluate if an evaluation is due, and write a checkpoint."""
        self._session.end_epoch(self._evaluate)
