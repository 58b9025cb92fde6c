"""Train a network of 8 hidden units on the sign of the product of two coordinates (XOR).

Each rank scales the gradients of its summed losses by the number of ranks, divided by the number of
points of the global batch. The average over the ranks is then the gradient of the mean loss over
the global batch, for any number of ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from toy_tensorflow import points
from toy_tensorflow.settings import TrainSettings
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.parts import Parts
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.tensorflow import determinism
from trainkit.tensorflow.parts import Variables, digest, plain
from trainkit.tensorflow.start import start
from trainkit.tensorflow.strategy import Sum, TensorFlowStrategy
from trainkit.training import Course

FREE = {"out", "resume", "device", "checkpoint_every", "log_every"}
"""Settings that may change when a training is resumed."""
POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16"}
PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "numpy", "trainkit", "toy-tensorflow")
WORDS = Words(
    losses={metrics.TRAIN_LOSS: "loss"}, rates={}, unit="points/s",
    advice="a lower --base-lr may help",
)


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    assert settings.out is not None
    determinism.prepare(settings.seed, threads=1)
    ranks = start(settings.strategy, device=settings.device)
    with ranks.explained(), StopFlag() as stop:
        if session.has_finished(settings.out, settings.resume, ranks):
            return
        out = outputs.open_outputs(
            settings.out, settings.resume, identity(settings, ranks), strategy=ranks, keep=2,
            packages=PACKAGES, warn=print,
        )
        with out.log, tf.device(ranks.device):
            Training(settings, ranks, out, stop).run()
        ranks.close()


def identity(settings: TrainSettings, ranks: TensorFlowStrategy) -> dict[str, Any]:
    """Return the settings that must be equal in a checkpoint and a training that resumes it."""
    values = dataclasses.asdict(settings)
    return {key: values[key] for key in values if key not in FREE} | {"ranks": ranks.size}


class Training:
    """The training loop; all steps of the training are one epoch."""

    def __init__(
        self, settings: TrainSettings, ranks: TensorFlowStrategy, out: Outputs, stop: StopFlag
    ) -> None:
        self.settings, self.ranks = settings, ranks
        self.batch = settings.batch_size_per_rank * ranks.size
        keras.mixed_precision.set_global_policy(POLICIES[settings.precision])
        inputs = keras.Input((2,))
        hidden = keras.layers.Dense(8, "tanh")(inputs)
        self.network = keras.Model(inputs, keras.layers.Dense(2, dtype="float32")(hidden))
        self.optimizer = keras.optimizers.SGD(settings.base_lr, momentum=0.9)
        self.optimizer.build(self.network.trainable_variables)
        self.weights = [plain(variable) for variable in self.network.trainable_variables]
        ranks.broadcast(self.network.variables)
        self.update_in_graph = tf.function(self.update)
        steps = settings.steps
        course = Course(
            steps_per_epoch=steps, planned=steps, last_step=steps, eval_every=1,
            log_every=settings.log_every, checkpoint_every=settings.checkpoint_every,
        )
        self.session = Session(out, ranks, stop, course, WORDS, self)

    def run(self) -> None:
        """Train to the end, or to the next update after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.session.begin_epoch()
                batches = self.batches(self.session.progress.step)
                while self.session.has_steps:
                    self.train_step(batches)
                self.session.end_epoch(self.evaluate)

    def batches(self, first: int) -> Iterator[points.Batch]:
        """Yield the global batches, beginning with step `first`."""
        for step in range(first, self.settings.steps):
            yield points.training(self.settings.seed, step, self.batch)

    def train_step(self, batches: Iterator[points.Batch]) -> None:
        """Make one update, and log the loss."""
        batch = self.session.next_batch(batches)
        stopping = tf.constant(float(self.session.stop_asked), tf.float64)
        self.session.finish_step(self.batch, Sum(self.update_in_graph(batch, stopping)), {})

    def update(self, batch: points.Batch, stopping: tf.Tensor) -> tf.Tensor:
        """Make one update; return the sum of the losses, and how many ranks should stop."""
        own = points.share(batch, self.ranks.rank, self.ranks.size)
        total = tf.zeros((), tf.float64)
        sums = [tf.zeros_like(weight) for weight in self.weights]
        for part in range(self.settings.accumulation):
            places, labels = points.share(own, part, self.settings.accumulation)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, self.network(places, training=True)
                ))
                scaled = loss * (self.ranks.size / self.batch)
            gradients = tape.gradient(scaled, self.weights)
            sums = [before + now for before, now in zip(sums, gradients, strict=True)]
            total += tf.cast(loss, tf.float64)
        self.optimizer.apply(self.ranks.average(sums), self.network.trainable_variables)
        return self.ranks.total(tf.stack([total, stopping]))

    def evaluate(self) -> Evaluation:
        """Return the accuracy on the held-out points; each rank evaluates all of them."""
        places, labels = points.held_out(self.settings.seed)
        found = tf.argmax(self.network(places, training=False), 1, tf.int32)
        accuracy = float(tf.reduce_mean(tf.cast(found == labels, tf.float64)).numpy())
        return Evaluation(
            {metrics.EVAL_ACCURACY: accuracy}, {"accuracy": accuracy}, f"accuracy {accuracy:.2%}"
        )

    def parts(self) -> Parts:
        """Return the objects whose state a checkpoint saves: the network and its optimizer."""
        return {
            "network": Variables(self.network.variables),
            "optimizer": Variables(self.optimizer.variables),
        }

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {
            metrics.SEED: self.settings.seed, metrics.GLOBAL_BATCH_SIZE: self.batch,
            metrics.EVAL_SAMPLES: points.HELD_OUT,
        }

    def digest(self) -> str:
        """Return a digest of the weights."""
        return digest(self.weights)

    def before_save(self) -> None:
        """Do nothing, because all ranks have the same state."""

    def own_state(self) -> dict[str, Any]:
        """Return {}, because a checkpoint needs nothing besides `parts` and the progress."""
        return {}

    def own_result(self) -> dict[str, Any]:
        """Return no entries, because `result.json` contains accuracy and steps already."""
        return {}
