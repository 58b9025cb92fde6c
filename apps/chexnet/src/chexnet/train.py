"""Train CheXNet: a network pre-trained on photographs learns to find 14 diseases in chest X-rays.

This app reproduces, with the settings of `recipes/chexnet/`: Rajpurkar et al., "CheXNet:
Radiologist-Level Pneumonia Detection on Chest X-Rays with Deep Learning", arXiv:1711.05225, and its
scaled-out version in the PRACE Best Practice Guide - Deep Learning (2019), section 6.4.

Method: a body that was trained on ImageNet computes features of an image, and a new head computes a
logit for each finding. In the first epochs the body may be frozen; then Adam or SGD trains both on
the binary cross-entropy of each finding, in which presence and absence have equal weight. If the
AUROC on the validation images stops rising, the learning rate drops, and later the training ends.

A step is one TensorFlow graph, which averages the gradients of all ranks. The average is checked
at the start, and the weights of the ranks are compared at the end. This file contains the loop,
`method.py` the formulas, `network.py` the networks, and `inputs.py` the batches of images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from chexnet import inputs, method, network, training_evaluation, weights
from chexnet.inputs import Batch, Inputs, Loader
from chexnet.settings import TrainSettings
from chexnet.state import Trained, identity
from trainkit import metrics, outputs, session
from trainkit.exits import StoppedError
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.tensorflow import determinism
from trainkit.tensorflow.parts import plain
from trainkit.tensorflow.profile import Profile
from trainkit.tensorflow.start import start
from trainkit.tensorflow.strategy import Sum, TensorFlowStrategy
from trainkit.training import Course

PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "horovod", "numpy", "trainkit", "chexnet")
WORDS = Words(
    losses={metrics.TRAIN_LOSS: "loss"}, rates={metrics.LEARNING_RATE: "lr"}, unit="img/s",
    advice="a lower --base-lr or a longer --warmup-images may help",
)


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    folder = settings.out
    assert folder is not None  # noqa: S101 - `settings.check` refuses None
    determinism.prepare(settings.seed, threads=settings.threads, inter=settings.inter_threads)
    ranks = start(settings.strategy, device=settings.device)
    with ranks.explained(), StopFlag() as stop:
        if session.has_finished(folder, settings.resume, ranks):
            return
        if settings.initial_rate and settings.initial is not None:
            settings = replace(settings, base_lr=weights.recorded_learning_rate(settings.initial))
        data = inputs.open_inputs(settings, ranks)
        out = outputs.open_outputs(
            folder, settings.resume, identity(settings, data, ranks), strategy=ranks,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log, tf.device(ranks.device):
            Training(settings, ranks, data, out, stop).run()
        ranks.close()


class Training:
    """The loop over epochs and steps."""

    def __init__(
        self, settings: TrainSettings, ranks: TensorFlowStrategy, data: Inputs, out: Outputs,
        stop: StopFlag,
    ) -> None:
        self.settings, self.ranks, self.data = settings, ranks, data
        self.network = network.build(
            settings.model, settings.size, len(data.findings), settings.precision
        )
        if settings.initial is not None and out.state is None:
            said = print if ranks.is_main else str
            weights.load(self.network, settings.initial, warn=said)
        self.trained = Trained(settings, data, ranks, self.network)
        self.losses = self._losses()
        self.graphs: dict[tuple[bool, int], Any] = {}
        steps = data.train.plan.steps
        course = Course.of(settings, steps, settings.epochs * steps)
        self.session = Session(
            out, ranks, stop, course, WORDS, self.trained, Profile(settings.profile)
        )
        ranks.broadcast(self.trained.variables)

    def _losses(self) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Return the function from logits and labels to the loss of each image."""
        if self.data.exclusive:
            return method.class_losses
        labels = self.data.train.vectors() if self.settings.weighted else np.zeros(
            (0, len(self.data.findings)), np.float32
        )
        weighting = tf.constant(method.finding_weights(labels))
        return lambda logits, labels: method.losses(logits, labels, weighting)

    def run(self) -> None:
        """Train until the last epoch ends, the validation AUROC stalls, or a signal arrives."""
        with self.session.running():
            if self.trained.plateau.stopped:  # the run was killed after the decision to stop
                self.session.end_here()
            while not self.session.is_over:
                self.run_epoch()
            if self.data.test is not None:
                self.test(self.data.test)

    def run_epoch(self) -> None:
        """Train the remaining steps of the epoch; evaluate and write a checkpoint at its end."""
        progress = self.session.progress
        self.session.begin_epoch()
        batches = self.data.train.epoch(progress.epoch, progress.step)
        while self.session.has_steps:
            self.train_step(batches, frozen=progress.epoch < self.settings.frozen_epochs)
        self.session.end_epoch(self.evaluate)
        if self.trained.plateau.stopped:
            self.session.end_here()

    def train_step(self, batches: Iterator[Batch], *, frozen: bool) -> None:
        """Make one update with the learning rates of this step."""
        batch, settings = self.session.next_batch(batches), self.settings
        rate = method.learning_rate(
            settings, self.session.progress.steps_done, self.data.train.plan.batch,
            self.trained.plateau.factor, self.session.progress.epoch,
        )
        head, body = self.trained.head_optimizer, self.trained.body_optimizer
        head.learning_rate.assign(rate)
        body.learning_rate.assign(rate * (settings.body_lr or settings.base_lr) / settings.base_lr)
        update = self.graph(frozen, min(settings.accumulation, len(batch.images)))
        share = tf.constant(self.ranks.size / batch.count, tf.float32)
        stopping = tf.constant(float(self.session.stop_asked), tf.float64)
        sums = Sum(update(batch.images, batch.labels, share, stopping))
        self.session.finish_step(batch.count, sums, {metrics.LEARNING_RATE: rate})

    def graph(self, frozen: bool, parts: int) -> Any:
        """Return the TensorFlow graph of an update; the first call builds it, later calls reuse it.

        Args:
            frozen: whether the body is frozen.
            parts: number of micro-batches; 0 for a rank without images.
        """
        if (frozen, parts) not in self.graphs:
            size, channels = self.settings.size, int(self.settings.channels)

            def update(images: Any, labels: Any, share: Any, stopping: Any) -> tf.Tensor:
                return self.update(images, labels, share, stopping, frozen=frozen, parts=parts)

            # One graph for all batch sizes, because the last batch of an epoch may be smaller.
            self.graphs[frozen, parts] = tf.function(update, input_signature=[
                tf.TensorSpec((None, size, size, channels), tf.uint8),
                tf.TensorSpec((None, len(self.data.findings)), tf.float32),
                tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.float64),
            ])
        return self.graphs[frozen, parts]

    def update(
        self, images: tf.Tensor, labels: tf.Tensor, share: tf.Tensor, stopping: tf.Tensor, *,
        frozen: bool, parts: int,
    ) -> tf.Tensor:
        """Make one update.

        The gradients are averaged over the ranks. Therefore each rank contributes the sum of its
        gradients, multiplied by `share`.

        Args:
            images: images of this rank, values 0..255, (n, size, size, channels).
            labels: labels of these images, (n, findings).
            share: number of ranks / images of the global batch.
            stopping: 1 if a signal requested a stop of this rank, else 0.
            frozen: whether the body is frozen.
            parts: number of micro-batches.

        Returns:
            The sum of the losses of all ranks, and the number of ranks with a stop request, (2,).
        """
        trained, scale = self.trained, self.trained.scale
        body = [] if frozen else [plain(one) for one in self.network.body.trainable_variables]
        head = [plain(one) for one in self.network.head.trainable_variables]
        sums = [tf.zeros_like(one) for one in head + body]
        total, count = tf.zeros((), tf.float64), tf.shape(images)[0]
        for part in range(parts):
            own = slice(count * part // parts, count * (part + 1) // parts)
            seen = self.network.features(images[own], training=False) if frozen else None
            with tf.GradientTape() as tape:
                features = seen if frozen else self.network.features(
                    images[own], training=self.settings.statistics
                )
                logits = self.network.head(features, training=True)
                loss = tf.reduce_sum(self.losses(logits, labels[own]))
                scaled = loss * share * scale.scale
            gradients = tape.gradient(scaled, head + body)
            sums = [before + now for before, now in zip(sums, gradients, strict=True)]
            total += tf.cast(loss, tf.float64)
        means, finite = scale.unscaled(self.ranks.average(sums))
        tf.cond(finite, lambda: trained.apply(means, len(head), frozen=frozen), tf.no_op)
        return self.ranks.total(tf.stack([total, stopping]))

    def evaluate(self) -> Evaluation | None:
        """Return the scores on the evaluation images, or None after an interruption by a signal."""
        found = training_evaluation.evaluate(self.trained, self.session, self.data.evaluation)
        if found is not None:
            key = metrics.EVAL_ACCURACY if self.data.exclusive else "eval_auroc"
            self.trained.plateau.update(found.values.get(key))
        return found

    def test(self, images: Loader) -> None:
        """Log the scores on the test images once, after the training.

        Raises:
            StoppedError: a signal interrupted the test. A resumed run repeats it.
        """
        session = self.session
        found = training_evaluation.evaluate(self.trained, session, images)
        if found is None:
            raise StoppedError("stopped by a signal in the test; continue with --resume auto")
        self.trained.tested = dict(found.result)
        for name, value in found.result.items():
            session.journal.log.event(f"test_{name}", value, **session.progress.where)
        session.journal.console.line(f"test  {found.text}")
