"""The app contract around `model.fit`, which is the same for each strategy.

A strategy's file opens the run, builds and compiles the network in its own way, and fits it:

    with contract.opened(settings, ranks) as run:
        ...
        with run.fitting(model, batches) as fit:
            for epoch, first in fit.epochs():
                model.fit(...)
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from keras_resnet import evaluation, images, network, traffic
from keras_resnet.evaluation import Sums
from keras_resnet.images import Images, Split
from keras_resnet.network import CORRECT, Classifier
from keras_resnet.settings import TrainSettings
from trainkit import metrics, outputs, session
from trainkit.journal import Words
from trainkit.outputs import Outputs
from trainkit.parts import Parts
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.tensorflow.keras_fit import FitSession
from trainkit.tensorflow.parts import Variables, digest
from trainkit.tensorflow.strategy import TensorFlowStrategy
from trainkit.training import Course

PACKAGES = ("tensorflow-cpu", "tensorflow", "tf-keras", "horovod", "numpy", "trainkit",
            "keras-resnet")
WORDS = Words(
    losses={metrics.TRAIN_LOSS: "loss", CORRECT: "accuracy"}, rates={metrics.LEARNING_RATE: "lr"},
    unit="img/s", advice="a lower --learning-rate may help", waits=False,
)
STALENESS = "staleness"
"""Metric key: number of updates that other workers make between a worker's reading of the weights
and the end of its own update, mean over the images. It is 0 in synchronous SGD."""

ASYNCHRONOUS = dataclasses.replace(WORDS, losses={**WORDS.losses, STALENESS: STALENESS})
FREE = {
    "data", "out", "resume", "checkpoint_every", "keep", "log_every", "max_steps", "device",
    "decoders", "inter_threads", "watchdog", "servers",
}
"""Settings that may change at a resume; all others affect the weights or the metrics."""


@dataclasses.dataclass(frozen=True)
class Run:
    """An opened run.

    Attributes:
        settings: options of the training.
        ranks: the strategy that connects the ranks.
        images: the images.
        out: the output files.
        stop: flag that is set by signals.
    """

    settings: TrainSettings
    ranks: TensorFlowStrategy
    images: Images
    out: Outputs
    stop: StopFlag

    def session(self, trained: Trained) -> Session:
        """Return the session of a training, which resumes from a checkpoint if there is one."""
        settings, steps = self.settings, self.images.train.plan.steps
        course = Course.of(settings, steps, settings.epochs * steps)
        words = ASYNCHRONOUS if settings.asynchronous else WORDS
        return Session(self.out, self.ranks, self.stop, course, words, trained)

    @contextlib.contextmanager
    def fitting(
        self, model: Classifier, batches: Callable[[Split], Any],
        total: Callable[[list[float]], list[float]] | None = None,
        evaluated: Callable[[Any], Iterable[Sums]] | None = None,
    ) -> Iterator[FitSession]:
        """Log the start and the end of the training by `model.fit` in the `with` block.

        Args:
            model: the compiled network.
            batches: function that returns the batches of a split for this process.
            total: function that adds the sums of the ranks; None if Keras adds them itself.
            evaluated: function that evaluates batches and yields their sums; None to evaluate with
                `model.evaluate`.

        Yields:
            The callback for `model.fit`.
        """
        model.accumulation = self.settings.accumulation
        with model.distribute_strategy.scope():  # each replica has its own momentum
            model.optimizer.build(model.trainable_variables)
        trained = Trained(self, model)
        current = self.session(trained)

        def evaluate() -> Any:
            trained.before_save()
            split = self.images.evaluation
            return evaluation.evaluate(
                model, batches(split), split, current, self.ranks, total, evaluated
            )

        images = self.images
        with current.running(), images.train.explained(), images.evaluation.explained():
            yield FitSession(
                current, self.images.train.plan, evaluate=evaluate,
                rate=lambda: self.settings.learning_rate, total=total,
                stopped=lambda: self.ranks.any(current.stop_asked),
            )


@contextlib.contextmanager
def opened(settings: TrainSettings, ranks: TensorFlowStrategy) -> Iterator[Run | None]:
    """Open the images and the output folder for the training in the `with` block.

    Yields:
        The run; None if the folder has a finished run, which `--resume auto` leaves unchanged.

    Raises:
        AppError: the run cannot be opened; the error has the exit code of the app contract.
    """
    folder = settings.out
    assert folder is not None  # noqa: S101 - `settings.check` refuses None
    with ranks.explained(), StopFlag() as stop:
        network.check_name(settings.model)
        if session.has_finished(folder, settings.resume, ranks):
            yield None
            return
        found = images.open_images(settings)
        settings.check_replicas(ranks.replicas, found.train.plan.samples)
        out = outputs.open_outputs(
            folder, settings.resume, identity(settings, found, ranks), strategy=ranks,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log, tf.device(ranks.device):
            yield Run(settings, ranks, found, out, stop)
        ranks.close()


def identity(
    settings: TrainSettings, found: Images, ranks: TensorFlowStrategy
) -> dict[str, Any]:
    """Return the properties that must be equal in a checkpoint and a training that resumes it."""
    values = dataclasses.asdict(settings)
    facts = {"data": found.name, "replicas": ranks.replicas}
    return {key: values[key] for key in values if key not in FREE} | facts


class Trained:
    """The state of a training that checkpoints keep; implements `trainkit.training.Training`."""

    def __init__(self, run: Run, model: Classifier) -> None:
        self.run, self.model = run, model

    def parts(self) -> Parts:
        """Return weights, running statistics and optimizer state for a checkpoint, by name."""
        return {
            "weights": Variables(self.model.trainable_variables),
            "statistics": Variables(self.model.non_trainable_variables),
            "optimizer": Variables(self.model.optimizer.variables),
        }

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        found = self.run.images
        return {
            metrics.SEED: self.run.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: found.train.plan.batch,
            metrics.TRAIN_SAMPLES: found.train.plan.samples,
            metrics.EVAL_SAMPLES: found.evaluation.plan.samples,
            traffic.SENT: self.sent_per_step(),
        }

    def sent_per_step(self) -> int:
        """Return the bytes that all replicas send to each other in one step."""
        settings, replicas = self.run.settings, self.run.ranks.replicas
        weights = sum(
            math.prod(one.shape) * one.dtype.size for one in self.model.trainable_variables
        )
        gradients = weights  # of the same type
        if settings.strategy != "parameter-server":
            # Horovod's optimizer adds the gradients of each micro-batch: see network.py.
            times = settings.accumulation if settings.strategy == "horovod" else 1
            return times * traffic.all_reduce(gradients, replicas)
        batch = self.run.images.train.plan.batch * settings.size**2 * 3  # RGB, one byte each
        return traffic.parameter_server(
            weights, gradients, batch, replicas, synchronous=settings.synchronous
        )

    def digest(self) -> str:
        """Return a digest of the trainable weights, which are equal on all ranks."""
        return digest(self.model.trainable_variables)

    def before_save(self) -> None:
        """Average the running statistics of batch normalization over the replicas."""
        self.run.ranks.equalize(
            one for one in self.model.non_trainable_variables if one.dtype.is_floating
        )

    def own_state(self) -> dict[str, Any]:
        """Return the app's entry `about` of a checkpoint, which describes the network."""
        settings = self.run.settings
        return {"about": {
            "model": settings.model, "size": settings.size, "precision": settings.precision,
            "classes": list(self.run.images.classes),
        }}

    def own_result(self) -> dict[str, Any]:
        """Return the app's own entries of `result.json`."""
        return {"model": self.run.settings.model, "parameters": self.model.count_params()}
