"""The content of a checkpoint: everything that determines the rest of a training."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from resnet_imagenet.inputs import Inputs
from resnet_imagenet.settings import WARMUP_EPOCHS, TrainSettings
from trainkit import metrics
from trainkit.checkpoint import State
from trainkit.exits import ArgumentError
from trainkit.parts import Parts
from trainkit.torch.parts import RandomState, digest, load_network, parts
from trainkit.torch.strategy import TorchStrategy

FREE = {
    "data", "out", "threads", "resume", "checkpoint_every", "keep", "log_every", "max_steps",
    "backend", "compile_cache", "profile", "stage", "watchdog",
    "ranks", "batch_size_per_rank", "accumulation", "max_bad_records",
}
"""Settings that may change at a resume; all others affect the weights or the metrics.

The batch per rank and the accumulation may change with the number of ranks, if the global batch and
its number of micro-batches stay the same.
"""


def identity(settings: TrainSettings, data: Inputs, strategy: TorchStrategy) -> dict[str, Any]:
    """Return the properties that must be equal in a checkpoint and a training that resumes it."""
    values = dataclasses.asdict(settings)
    if settings.warmup_epochs is None:
        values["warmup_epochs"] = WARMUP_EPOCHS
    facts = {
        "data": data.name, "initial": str(settings.initial),
        "global_batch": settings.batch_size_per_rank * strategy.size,
        "parts": settings.accumulation * strategy.size,
    }
    return {key: values[key] for key in values if key not in FREE} | facts


@dataclasses.dataclass(frozen=True)
class Trained:
    """The state of a training that checkpoints keep; implements `trainkit.training.Training`.

    Attributes:
        settings: options of the training.
        data: batches of the training.
        strategy: the strategy that connects the ranks.
        network: the network that is trained.
        optimizer: the optimizer; its learning rate is computed from the step.
        average: moving average of the weights; None if the training has none.
        scaler: loss scaler in fp16; inactive in other precisions.
    """

    settings: TrainSettings
    data: Inputs
    strategy: TorchStrategy
    network: nn.Module
    optimizer: Optimizer
    average: AveragedModel | None
    scaler: torch.amp.GradScaler

    @property
    def best(self) -> nn.Module:
        """The network to evaluate: the moving average if there is one."""
        return self.network if self.average is None else self.average.module

    def parts(self) -> Parts:
        """Return the objects whose state changes from step to step, by name in a checkpoint."""
        average = {} if self.average is None else {"average": self.average}
        return parts(
            network=self.network, optimizer=self.optimizer, scaler=self.scaler, **average,
            random=RandomState(self.strategy),
        )

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.settings.batch_size_per_rank * self.strategy.size,
            metrics.TRAIN_SAMPLES: self.data.train.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.samples,
        }

    def digest(self) -> str:
        """Return a digest of the weights."""
        return digest([self.network])

    def before_save(self) -> None:
        """Average the running statistics of batch normalization over the ranks."""
        # `dict.fromkeys` removes a duplicate and keeps the order equal on all ranks.
        for network in dict.fromkeys((self.network, self.best)):
            self.strategy.average(b for b in network.buffers() if b.is_floating_point())

    def own_state(self) -> dict[str, Any]:
        """Return this app's entries of a checkpoint.

        They are the description of the network, and the bad records that were found so far.
        """
        return {"about": self.data.describe(self.settings), "bad_records": self.data.bad.found}

    def own_result(self) -> dict[str, Any]:
        """Return the app's own entries of `result.json`."""
        return {"model": self.settings.model}


def load_initial_weights(state: State, network: nn.Module, name: str) -> None:
    """Load the weights of a checkpoint into `network`, as the initial weights of a second stage.

    Raises:
        ArgumentError: the checkpoint belongs to another network.
    """
    try:
        load_network(network, trained_weights(state))
    except ValueError as error:
        raise ArgumentError(
            f"--initial {name} is of another network: {error}", code="weights-mismatch"
        ) from error


def trained_weights(state: State) -> dict[str, Any]:
    """Return the weights and buffers of a checkpoint, from its moving average if it has one."""
    prefix, stored = "module.", state["parts"]
    if "average" not in stored:
        weights: dict[str, Any] = stored["network"]
        return weights
    average = stored["average"]
    return {k.removeprefix(prefix): v for k, v in average.items() if k.startswith(prefix)}
