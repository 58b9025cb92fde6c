"""The command `fit`: train the network with Keras's `model.fit` and Horovod, for comparison.

The PRACE Best Practice Guide - Deep Learning (2019, section 6.4) compares two training loops on 128
nodes: an epoch takes 85 s with Keras and 18 s with TensorFlow. `train` has the loop in TensorFlow.
This command has the loop in Keras, as in Horovod's examples: `DistributedOptimizer`, a broadcast of
the initial weights, and averaged metrics. Several ranks need Keras 2, because
`DistributedOptimizer` averages nothing in Keras 3; a single process uses any version of `tf.keras`.
The command logs throughput and loss, and saves no weights.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from chexnet import inputs, method
from chexnet.inputs import Inputs
from chexnet.network import CAFFE_OFFSET, OFFSET, POLICIES, SCALE
from chexnet.settings import FitSettings, TrainSettings
from trainkit import metrics, outputs
from trainkit.console import Console
from trainkit.exits import RanksDifferError
from trainkit.journal import Journal, Words
from trainkit.metrics import MetricsLog
from trainkit.progress import Progress
from trainkit.tensorflow import determinism
from trainkit.tensorflow.horovod import check_keras
from trainkit.tensorflow.parts import digest
from trainkit.tensorflow.start import start
from trainkit.tensorflow.strategy import TensorFlowStrategy

PACKAGES = ("tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "trainkit", "chexnet")
WORDS = Words(losses={metrics.TRAIN_LOSS: "loss"}, rates={}, unit="img/s", advice="")
MAKERS = {"densenet121": "DenseNet121", "resnet50": "ResNet50"}


def main(settings: FitSettings) -> None:
    """Train as `settings` specify, and write metrics and result to `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    assert settings.out is not None  # noqa: S101 - `settings.check` refuses None
    check_keras("fit", two=settings.strategy == "horovod")
    determinism.prepare(
        settings.seed, exact=False, threads=settings.threads, inter=settings.inter_threads
    )
    ranks = start(settings.strategy, device=settings.device)
    with ranks.explained():
        data = inputs.open_inputs(_train_settings(settings), ranks)
        out = outputs.open_outputs(
            settings.out, "never", {}, strategy=ranks, keep=1, packages=PACKAGES, warn=print
        )
        with out.log, tf.device(ranks.device):
            model, callbacks = compile_model(tf.keras, settings, data, ranks)
            log = FitLog(settings, data, ranks, out.log)
            log.journal.began({
                metrics.SEED: settings.seed, metrics.GLOBAL_BATCH_SIZE: data.train.plan.batch,
                metrics.TRAIN_SAMPLES: data.train.plan.samples,
            }, ranks.size)
            model.fit(
                _batches(data, settings, log.steps), steps_per_epoch=log.steps, verbose=0,
                epochs=settings.epochs, callbacks=[*callbacks, log.callback(tf.keras)],
            )
            if len(set(ranks.gather(digest(model.trainable_variables)))) > 1:
                raise RanksDifferError(
                    "the ranks have different weights, because their gradients were not averaged; "
                    "the result is not valid"
                )
            memory = ranks.gather(ranks.peak_memory())
            out.finish(log.journal.ended(log.at, memory))
        ranks.close()


def compile_model(
    keras: Any, settings: FitSettings, data: Inputs, ranks: TensorFlowStrategy
) -> tuple[Any, list[Any]]:
    """Return the compiled model, and the Horovod callbacks that several ranks need."""
    keras.mixed_precision.set_global_policy(POLICIES[settings.precision])
    layers, shape = keras.layers, (settings.size, settings.size)
    images = keras.Input((*shape, int(settings.channels)))
    values = images if settings.channels == "3" else layers.Concatenate()([images] * 3)
    if settings.model == "densenet121":
        values = layers.Rescaling(SCALE, OFFSET)(values)
    else:
        values = layers.Lambda(lambda found: found[..., ::-1])(values)
        values = layers.Rescaling(1.0, CAFFE_OFFSET)(values)
    maker = getattr(keras.applications, MAKERS[settings.model])
    body = maker(include_top=False, weights=None, input_shape=(*shape, 3), pooling="avg")
    model = keras.Model(images, layers.Dense(len(data.findings), dtype="float32")(body(values)))
    weighting = tf.constant(method.finding_weights(data.train.vectors()))
    optimizer, callbacks = keras.optimizers.Adam(settings.base_lr), []
    if ranks.size > 1:
        import horovod.tensorflow.keras as hvd

        optimizer = hvd.DistributedOptimizer(optimizer)
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                     hvd.callbacks.MetricAverageCallback()]
    model.compile(optimizer, lambda labels, found: method.losses(found, labels, weighting))
    return model, callbacks


class FitLog:
    """The log of a training by Keras.

    Attributes:
        at: progress of the training.
        steps: number of steps of an epoch.
        journal: writes the metrics log and the lines on the console.
    """

    def __init__(
        self, settings: FitSettings, data: Inputs, ranks: TensorFlowStrategy, log: MetricsLog
    ) -> None:
        plan = data.train.plan
        self.steps = min(plan.steps, settings.max_steps or plan.steps)
        self.at = Progress(self.steps)
        last = settings.epochs * self.steps
        console = Console(last, 0, quiet=not ranks.is_main)
        self.journal = Journal(log, console, WORDS, settings.epochs, last)
        self._every, self._ranks, self._plan = settings.log_every, ranks, plan
        self._begun = self._lost = 0.0
        self._images, self._steps = 0, 0

    def callback(self, keras: Any) -> Any:
        """Return a Keras callback that calls this log in each step and epoch."""
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.begin(),
            on_train_batch_end=lambda batch, logs: self.finish_step(logs["loss"]),
            on_epoch_end=lambda epoch, logs: self.at.next_epoch(self.steps)
            if epoch + 1 < self.journal.epochs else None,
        )

    def begin(self) -> None:
        """Start the clock, and reset the sum of the losses, for a new epoch."""
        self._begun, self._lost = time.perf_counter(), 0.0

    def finish_step(self, mean: float) -> None:
        """Count a step; `mean` is the mean loss of this rank in the epoch so far."""
        at, plan = self.at, self._plan
        self._images += min(plan.batch, plan.samples - at.step * plan.batch)
        self._steps += 1
        at.step += 1
        if at.step % self._every == 0 or at.epoch_is_over:
            self._log_window(mean * at.step)

    def _log_window(self, lost: float) -> None:
        """Log the steps since the last log line.

        `lost` is the sum of this rank's losses over all steps of the epoch so far. The time
        spent waiting for data or other ranks is not logged, because Keras does not report it.
        """
        seconds = time.perf_counter() - self._begun
        own = (lost - self._lost) / self._steps
        (loss,) = (one / self._ranks.size for one in self._ranks.sum([own]))
        speed, where = self._images / seconds, self.at.where
        self.journal.log.event(metrics.TRAIN_LOSS, loss, **where)
        self.journal.log.event(metrics.THROUGHPUT, speed, unit=WORDS.unit, **where)
        self.journal.console.progress(
            f"epoch {self.at.epoch + 1}/{self.journal.epochs}  step {self.at.steps_done}/"
            f"{self.journal.last_step}  loss {loss:.4f}  {speed:.3g} {WORDS.unit}"
        )
        self.at.seconds += seconds
        self._images, self._steps, self._lost = 0, 0, lost
        self._begun = time.perf_counter()


def _train_settings(settings: FitSettings) -> TrainSettings:
    """Return the options of `train` that determine how images are read.

    Their values are the values of the options with the same names in `settings`.
    """
    return TrainSettings(
        data=settings.data, synthetic=settings.synthetic, size=settings.size,
        channels=settings.channels, batch_size_per_rank=settings.batch_size_per_rank,
        augment=settings.augment, decoders=settings.decoders, seed=settings.seed,
    )


def _batches(data: Inputs, settings: FitSettings, steps: int) -> tf.data.Dataset:
    """Return the images and labels of all epochs as a `tf.data.Dataset` for Keras."""

    def every() -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        for epoch in range(settings.epochs):
            for batch in itertools.islice(data.train.epoch(epoch), steps):
                yield tf.cast(batch.images, tf.float32), batch.labels

    shape = (None, settings.size, settings.size, int(settings.channels))
    return tf.data.Dataset.from_generator(every, output_signature=(
        tf.TensorSpec(shape, tf.float32), tf.TensorSpec((None, len(data.findings)), tf.float32),
    )).prefetch(2)
