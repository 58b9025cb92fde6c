"""The same network by Keras's own `model.fit`, with Horovod's callbacks: to compare the loop with.

The guide compares both ways on 128 nodes: 85 s for an epoch through Keras, 18 s through TensorFlow
(PRACE Best Practice Guide - Deep Learning, 2019, section 6.4). Here is the first one as Horovod's
examples have it: `DistributedOptimizer`, the first weights broadcast, metrics averaged. It averages
under Keras 2 only, which ranks therefore need; one process takes whichever Keras `tf.keras` is. It
tells its speed and its loss, and keeps nothing.
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
from trainkit.exits import ArgumentError, RanksDifferError
from trainkit.journal import Journal, Words
from trainkit.metrics import MetricsLog
from trainkit.progress import Progress
from trainkit.tensorflow import determinism
from trainkit.tensorflow.parts import digest
from trainkit.tensorflow.start import start
from trainkit.tensorflow.strategy import TensorFlowStrategy

PACKAGES = ("tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "trainkit", "chexnet")
WORDS = Words(losses={metrics.TRAIN_LOSS: "loss"}, rates={}, unit="img/s", advice="")
MAKERS = {"densenet121": "DenseNet121", "resnet50": "ResNet50"}


def main(settings: FitSettings) -> None:
    """Train as `settings` say; metrics and result are in `settings.out`.

    Raises:
        AppError: with the exit code of the app contract.
    """
    assert settings.out is not None  # noqa: S101 - `settings.check` saw to it
    keras = keras_for(settings.strategy)
    determinism.prepare(
        settings.seed, exact=False, threads=settings.threads, inter=settings.inter_threads
    )
    ranks = start(settings.strategy, device=settings.device)
    with ranks.explained():
        data = inputs.open_inputs(_reading(settings), ranks)
        out = outputs.open_outputs(
            settings.out, "never", {}, strategy=ranks, keep=1, packages=PACKAGES, warn=print
        )
        with out.log, tf.device(ranks.device):
            model, callbacks = compiled(keras, settings, data, ranks)
            told = Told(settings, data, ranks, out.log)
            told.journal.began({
                metrics.SEED: settings.seed, metrics.GLOBAL_BATCH_SIZE: data.train.plan.batch,
                metrics.TRAIN_SAMPLES: data.train.plan.samples,
            }, ranks.size)
            model.fit(
                _batches(data, settings, told.steps), steps_per_epoch=told.steps, verbose=0,
                epochs=settings.epochs, callbacks=[*callbacks, told.callback(keras)],
            )
            if len(set(ranks.gather(digest(model.trainable_variables)))) > 1:
                raise RanksDifferError("the ranks have different weights: nothing was averaged")
            memory = ranks.gather(ranks.peak_memory())
            out.finish(told.journal.ended(told.at, memory))
        ranks.close()


def keras_for(strategy: str) -> Any:
    """Return `tf.keras`, where Horovod looks for it.

    Raises:
        ArgumentError: it is Keras 3 and there may be ranks, or it is not there.
    """
    remedy = "set TF_USE_LEGACY_KERAS=1 and install tf-keras, or take an image, which has both"
    try:
        name = tf.keras.__name__
    except ImportError as error:  # TF_USE_LEGACY_KERAS without the package
        raise ArgumentError(f"fit: no Keras 2 ({error}): {remedy}") from error
    if strategy == "horovod" and not name.startswith("tf_keras"):
        raise ArgumentError(
            "fit --strategy horovod needs Keras 2, and tf.keras is Keras 3, under which Horovod's "
            f"optimizer averages nothing: {remedy}"
        )
    return tf.keras


def compiled(
    keras: Any, settings: FitSettings, data: Inputs, ranks: TensorFlowStrategy
) -> tuple[Any, list[Any]]:
    """Return the model, ready for `fit`, and Horovod's callbacks."""
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
    weighting = tf.constant(method.weights(data.train.vectors()))
    optimizer, callbacks = keras.optimizers.Adam(settings.base_lr), []
    if ranks.size > 1:
        import horovod.tensorflow.keras as hvd

        optimizer = hvd.DistributedOptimizer(optimizer)
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                     hvd.callbacks.MetricAverageCallback()]
    model.compile(optimizer, lambda labels, found: method.losses(found, labels, weighting))
    return model, callbacks


class Told:
    """What is told while Keras trains.

    Attributes:
        at: where the training stands.
        steps: of an epoch.
        journal: writes it down.
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
        """Return it as Keras calls it."""
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.begin(),
            on_train_batch_end=lambda batch, logs: self.made(logs["loss"]),
            on_epoch_end=lambda epoch, logs: self.at.next_epoch(self.steps)
            if epoch + 1 < self.journal.epochs else None,
        )

    def begin(self) -> None:
        """Begin an epoch."""
        self._begun, self._lost = time.perf_counter(), 0.0

    def made(self, mean: float) -> None:
        """Count a step; `mean` is the loss of this rank over the epoch so far."""
        at, plan = self.at, self._plan
        self._images += min(plan.batch, plan.samples - at.step * plan.batch)
        self._steps += 1
        at.step += 1
        if at.step % self._every == 0 or at.epoch_is_over:
            self._tell(mean * at.step)

    def _tell(self, lost: float) -> None:
        """Tell the steps since the last time; of all steps of the epoch this rank `lost` so much.

        What was waited for, data or other ranks, is not seen from here, and not told.
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


def _reading(settings: FitSettings) -> TrainSettings:
    """Return how images are read: as `train` does."""
    return TrainSettings(
        data=settings.data, synthetic=settings.synthetic, size=settings.size,
        channels=settings.channels, batch_size_per_rank=settings.batch_size_per_rank,
        augment=settings.augment, decoders=settings.decoders, seed=settings.seed,
    )


def _batches(data: Inputs, settings: FitSettings, steps: int) -> tf.data.Dataset:
    """Return images and labels of all epochs, as Keras takes them."""

    def every() -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        for epoch in range(settings.epochs):
            for batch in itertools.islice(data.train.epoch(epoch), steps):
                yield tf.cast(batch.images, tf.float32), batch.labels

    shape = (None, settings.size, settings.size, int(settings.channels))
    return tf.data.Dataset.from_generator(every, output_signature=(
        tf.TensorSpec(shape, tf.float32), tf.TensorSpec((None, len(data.findings)), tf.float32),
    )).prefetch(2)
