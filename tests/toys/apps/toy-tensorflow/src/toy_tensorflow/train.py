"""Train a network of 8 hidden units on the sign of a product: XOR, in the plane.

The gradients of a rank's sum of losses, times ranks / points of the global batch, are averaged
over the ranks: that is the mean over the global batch, however it is divided.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from typing import Any

import keras
import tensorflow as tf

from toy_tensorflow import points
from toy_tensorflow.settings import TrainSettings
from trainkit import metrics, outputs, parts
from trainkit.console import Console
from trainkit.exits import AppError, DivergedError, RanksDifferError, StoppedError
from trainkit.outputs import Outputs
from trainkit.signals import StopFlag
from trainkit.tensorflow import determinism
from trainkit.tensorflow.parts import Variables, digest, plain
from trainkit.tensorflow.start import start
from trainkit.tensorflow.strategy import TensorFlowStrategy

FREE = {"out", "resume", "device", "checkpoint_every", "log_every"}
"""Settings that may change when a training goes on."""
POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16"}
PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "numpy", "trainkit", "toy-tensorflow")


def train(settings: TrainSettings) -> None:
    """Train as `settings` say.

    Raises:
        AppError: with the exit code of the app contract.
    """
    assert settings.out is not None
    determinism.prepare(settings.seed, threads=1)
    ranks = start(settings.strategy, device=settings.device)
    with ranks.explained(), StopFlag() as stop:
        if ranks.share(
            ranks.is_main and outputs.is_finished(settings.out, settings.resume, warn=print)
        ):
            print(f"{settings.out} has a finished run, there is nothing to go on with")
            return
        out = outputs.open_outputs(
            settings.out, settings.resume, identity(settings, ranks), strategy=ranks, keep=2,
            packages=PACKAGES, warn=print,
        )
        with out.log, tf.device(ranks.device):
            Training(settings, ranks, out).run(stop)
        ranks.close()


def identity(settings: TrainSettings, ranks: TensorFlowStrategy) -> dict[str, Any]:
    """Return the settings that a resumed training shares with its checkpoint."""
    values = dataclasses.asdict(settings)
    return {key: values[key] for key in values if key not in FREE} | {"ranks": ranks.size}


class Training:
    """The loop."""

    def __init__(
        self, settings: TrainSettings, ranks: TensorFlowStrategy, out: Outputs
    ) -> None:
        self.settings, self.ranks, self.out = settings, ranks, out
        self.batch = settings.batch_size_per_rank * ranks.size
        keras.mixed_precision.set_global_policy(POLICIES[settings.precision])
        inputs = keras.Input((2,))
        hidden = keras.layers.Dense(8, "tanh")(inputs)
        self.network = keras.Model(inputs, keras.layers.Dense(2, dtype="float32")(hidden))
        self.optimizer = keras.optimizers.SGD(settings.base_lr, momentum=0.9)
        self.optimizer.build(self.network.trainable_variables)
        self.weights = [plain(variable) for variable in self.network.trainable_variables]
        ranks.broadcast(self.network.variables)
        self.parts = {
            "network": Variables(self.network.variables),
            "optimizer": Variables(self.optimizer.variables),
        }
        self.step = self.points = 0
        self.loss = self.seconds = 0.0  # since the last line of metrics
        if out.state is not None:
            self.restore(out.state)
        self.update_in_graph = tf.function(self.update)
        self.console = Console(settings.steps, self.step, quiet=not ranks.is_main)

    def update(self, batch: points.Batch, stopping: tf.Tensor) -> tf.Tensor:
        """Make one update; return the losses' sum and how many ranks are to stop, of all ranks."""
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

    def run(self, stop: StopFlag) -> None:
        """Train to the end, or to the next update after a signal."""
        log = self.out.log
        if self.step == 0:
            self.begin()
        else:
            log.event(metrics.RESUMED, self.step, step=self.step)
        try:
            while self.step < self.settings.steps:
                stopping = self.make_step(stop)
                if self.step % self.settings.log_every == 0:
                    self.tell()
                if stopping or self.step % self.settings.checkpoint_every == 0:
                    self.save()
                if stopping:
                    self.out.checkpoints.wait()
                    raise StoppedError(
                        f"stopped by {stop.name if stop else 'a signal to another rank'} after "
                        f"step {self.step}; go on with --resume auto"
                    )
            scores = self.evaluate()
            self.check_agreement()
            self.save()
            self.out.checkpoints.wait()
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=self.step)
            raise
        finally:
            self.console.close()
        log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=self.step)
        self.out.finish({"status": metrics.SUCCESS, "steps": self.step, "evaluation": scores})

    def begin(self) -> None:
        """Tell what the training is."""
        self.out.log.start(metrics.RUN_START)
        self.out.log.event(metrics.SEED, self.settings.seed)
        self.out.log.event(metrics.GLOBAL_BATCH_SIZE, self.batch)

    def make_step(self, stop: StopFlag) -> bool:
        """Make one update; return whether a rank is to stop.

        Raises:
            DivergedError: the loss is not finite.
        """
        started = time.perf_counter()
        batch = points.training(self.settings.seed, self.step, self.batch)
        loss, stopping = self.update_in_graph(
            batch, tf.constant(float(bool(stop)), tf.float64)
        ).numpy()
        self.step += 1
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} at step {self.step}; try a lower --base-lr")
        if self.step == 1:
            self.check_agreement()
        self.loss, self.points = self.loss + float(loss), self.points + self.batch
        self.seconds += time.perf_counter() - started
        self.console.step()
        return bool(stopping)

    def check_agreement(self) -> None:
        """Compare the weights of all ranks, bit by bit.

        Raises:
            RanksDifferError: they are not equal.
        """
        own = digest(self.weights)
        if self.ranks.any(own != self.ranks.share(own)):
            raise RanksDifferError(
                f"the ranks have different weights after step {self.step}: gradients are not "
                f"averaged by --strategy {self.ranks.name}, or a node is faulty"
            )

    def tell(self) -> None:
        """Log the updates since the last line."""
        loss, speed = self.loss / self.points, self.points / self.seconds
        self.out.log.event(metrics.TRAIN_LOSS, loss, step=self.step)
        self.out.log.event(metrics.THROUGHPUT, speed, unit="points/s", step=self.step)
        self.console.progress(f"step {self.step}/{self.settings.steps}  loss {loss:.4f}")
        self.points, self.loss, self.seconds = 0, 0.0, 0.0

    def evaluate(self) -> dict[str, float]:
        """Log and return the accuracy on the points held out; each rank sees all of them."""
        self.out.log.start(metrics.EVAL_START, step=self.step)
        places, labels = points.held_out(self.settings.seed)
        found = tf.argmax(self.network(places, training=False), 1, tf.int32)
        accuracy = float(tf.reduce_mean(tf.cast(found == labels, tf.float64)).numpy())
        self.out.log.event(metrics.EVAL_ACCURACY, accuracy, step=self.step)
        self.out.log.stop(metrics.EVAL_STOP, step=self.step)
        self.console.line(f"accuracy {100 * accuracy:.2f} %")
        return {"accuracy": accuracy}

    def save(self) -> None:
        """Begin to write a checkpoint."""
        if self.ranks.is_main:
            self.out.checkpoints.start(self.step, {
                "step": self.step,
                "identity": identity(self.settings, self.ranks),
                "metrics_offset": self.out.log.position(),
                "window": {"points": self.points, "loss": self.loss, "seconds": self.seconds},
                "parts": parts.snapshot(self.parts),
            })

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        parts.restore(self.parts, state["parts"])
        self.step = state["step"]
        window = state["window"]
        self.points, self.loss, self.seconds = window["points"], window["loss"], window["seconds"]
