"""The content of a checkpoint: everything that determines the rest of a training."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from chexnet import method
from chexnet.inputs import Inputs
from chexnet.method import LossScale, Plateau
from chexnet.network import Network
from chexnet.settings import TrainSettings
from trainkit import metrics
from trainkit.parts import Parts
from trainkit.tensorflow.parts import Variables, digest
from trainkit.tensorflow.strategy import TensorFlowStrategy

FREE = {
    "data", "out", "initial", "resume", "checkpoint_every", "keep", "log_every", "max_steps",
    "device", "decoders", "inter_threads", "profile", "test", "watchdog",
}
"""Settings that may change at a resume; all others affect the weights or the metrics."""


def identity(settings: TrainSettings, data: Inputs, ranks: TensorFlowStrategy) -> dict[str, Any]:
    """Return the properties that must be equal in a checkpoint and a training that resumes it."""
    values = dataclasses.asdict(settings)
    facts = {"data": data.name, "ranks": ranks.size}
    return {key: values[key] for key in values if key not in FREE} | facts


class Trained:
    """The state of a training that checkpoints keep; implements `trainkit.training.Training`.

    Attributes:
        settings: options of the training.
        data: batches of the training.
        ranks: the strategy that connects the ranks.
        network: the network that is trained.
        head_optimizer: optimizer of the head.
        body_optimizer: optimizer of the body; its steps begin after the epochs with a frozen body.
        scale: loss scale in fp16; 1 in other precisions.
        plateau: rule by which the validation AUROC lowers the rate and ends the training.
        tested: scores on the test images; empty before the test.
    """

    def __init__(
        self, settings: TrainSettings, data: Inputs, ranks: TensorFlowStrategy, network: Network
    ) -> None:
        self.settings, self.data, self.ranks, self.network = settings, data, ranks, network
        self.head_optimizer = method.optimizer(settings)
        self.body_optimizer = method.optimizer(settings)
        self.head_optimizer.build(network.head.trainable_variables)
        self.body_optimizer.build(network.body.trainable_variables)
        self.scale = LossScale(settings.precision)
        self.plateau = Plateau(settings)
        self.tested: dict[str, float] = {}
        shape = (None, settings.size, settings.size, int(settings.channels))
        self.predict = tf.function(
            lambda images: network.logits(images, training=False),
            input_signature=[tf.TensorSpec(shape, tf.uint8)],  # one graph for batches of any size
        )

    @property
    def variables(self) -> list[Any]:
        """The variables of the network."""
        return [*self.network.body.variables, *self.network.head.variables]

    def apply(self, gradients: list[tf.Tensor], head: int, *, frozen: bool) -> tf.Operation:
        """Make one update. Call this method in a `tf.function`.

        Args:
            gradients: gradients of the head, followed by the gradients of the body.
            head: number of gradients of the head.
            frozen: whether the body is frozen and has no gradients.
        """
        self.head_optimizer.apply(gradients[:head], self.network.head.trainable_variables)
        if not frozen:
            self.body_optimizer.apply(gradients[head:], self.network.body.trainable_variables)
        return tf.no_op()

    def parts(self) -> Parts:
        """Return weights, optimizer states, loss scale and `plateau` by name, for a checkpoint."""
        return {
            "body": Variables(self.network.body.variables),
            "head": Variables(self.network.head.variables),
            "body_optimizer": Variables(self.body_optimizer.variables),
            "head_optimizer": Variables(self.head_optimizer.variables),
            "loss_scale": Variables(self.scale.variables),
            "plateau": self.plateau,
        }

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.data.train.plan.batch,
            metrics.TRAIN_SAMPLES: self.data.train.plan.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.plan.samples,
        }

    def digest(self) -> str:
        """Return a digest of the trainable weights, which are equal on all ranks.

        The statistics of batch normalization are left out, because they differ between the ranks.
        """
        return digest([*self.network.body.trainable_variables,
                       *self.network.head.trainable_variables])

    def before_save(self) -> None:
        """Average the running statistics of batch normalization over the ranks."""
        self.ranks.equalize(
            one for one in self.network.body.non_trainable_variables if one.dtype == "float32"
        )

    def own_state(self) -> dict[str, Any]:
        """Return the entry `about`, which this app adds to a checkpoint.

        It describes the network and its data, and records the current learning rate of the head.
        A training that starts from the checkpoint with `--initial-rate` uses this rate instead of
        `--base-lr`.
        """
        return {"about": {
            "model": self.network.name, "size": self.settings.size,
            "channels": int(self.settings.channels), "findings": list(self.data.findings),
            "packed": self.data.packed and list(self.data.packed),
            "learning_rate": float(self.head_optimizer.learning_rate.numpy()),
        }}

    def own_result(self) -> dict[str, Any]:
        """Return the app's own entries of `result.json`."""
        tested = {"test": self.tested} if self.tested else {}
        return {"findings": list(self.data.findings)} | tested
