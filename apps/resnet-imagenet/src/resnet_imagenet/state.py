"""What a checkpoint keeps: everything that decides how a training goes on."""

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
"""Settings that may change when a training goes on; all others shape its weights or its curve.

Of batch and accumulation the products stay the same: global batch, and its parts.
"""


def identity(settings: TrainSettings, data: Inputs, strategy: TorchStrategy) -> dict[str, Any]:
    """Return the settings, and the data, that a resumed training shares with its checkpoint."""
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
    """A training as its checkpoints keep it: `trainkit.training.Training`.

    Attributes:
        settings: of the training.
        data: its batches.
        strategy: this rank and the others.
        network: the weights.
        optimizer: its momentum; the learning rate follows from the step.
        average: moving average of the weights, None without.
        scaler: of the loss in fp16; it does nothing in other precisions.
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
        """The network to evaluate: the moving average where there is one."""
        return self.network if self.average is None else self.average.module

    def parts(self) -> Parts:
        """Return what changes with the steps."""
        average = {} if self.average is None else {"average": self.average}
        return parts(
            network=self.network, optimizer=self.optimizer, scaler=self.scaler, **average,
            random=RandomState(self.strategy),
        )

    def facts(self) -> dict[str, int]:
        """Return what the metrics tell at the start."""
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
        """Replace the moving averages of batch normalization by their means over the ranks."""
        # Every rank in the same order: `best` may be the network itself.
        for network in dict.fromkeys((self.network, self.best)):
            self.strategy.average(b for b in network.buffers() if b.is_floating_point())

    def own_state(self) -> dict[str, Any]:
        """Return what `evaluate` and `predict` need, and the bad records that are known."""
        return {"about": self.data.describe(self.settings), "bad_records": self.data.bad.found}

    def own_result(self) -> dict[str, Any]:
        """Return what the training is of."""
        return {"model": self.settings.model}


def start_from(state: State, network: nn.Module, name: str) -> None:
    """Give `network` the weights of a checkpoint, as the first weights of a second stage.

    Raises:
        ArgumentError: they are of another network.
    """
    try:
        load_network(network, trained_weights(state))
    except ValueError as error:
        raise ArgumentError(f"--initial {name} is of another network: {error}") from error


def trained_weights(state: State) -> dict[str, Any]:
    """Return the weights and buffers to use from a checkpoint: the moving average if it has one."""
    prefix, found = "module.", state["parts"]
    if "average" not in found:
        weights: dict[str, Any] = found["network"]
        return weights
    average = found["average"]
    return {k.removeprefix(prefix): v for k, v in average.items() if k.startswith(prefix)}
