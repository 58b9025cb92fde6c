"""The content of a checkpoint: everything that determines the rest of a training."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.optim import Optimizer

from futuregan.growth import GrowthStage
from futuregan.inputs import Inputs
from futuregan.model import Discriminator, Generator
from futuregan.settings import TrainSettings
from trainkit import metrics
from trainkit.parts import Parts
from trainkit.torch.parts import digest, parts
from trainkit.torch.strategy import TorchStrategy

FREE = {
    "data", "out", "threads", "resume", "checkpoint_every", "keep", "log_every", "max_steps",
    "backend", "profile", "frame_cache", "watchdog",
}
"""Settings that may change at a resume; all others affect the weights or the metrics."""


def identity(settings: TrainSettings, data: Inputs, strategy: TorchStrategy) -> dict[str, Any]:
    """Return the properties that must be equal in a checkpoint and a training that resumes it."""
    values = {**dataclasses.asdict(settings), "batch_size_per_rank":
              str(settings.batch_size_per_rank)}
    facts = {"data": data.name, "ranks": strategy.size}
    return {key: values[key] for key in values if key not in FREE} | facts


@dataclasses.dataclass
class Trained:
    """The state of a training that checkpoints keep; implements `trainkit.training.Training`.

    Attributes:
        settings: options of the training.
        data: batches of the training.
        strategy: the strategy that connects the ranks.
        generator: the generator.
        discriminator: the discriminator.
        average: moving average of the generator; None if the training has none.
        optimizers: optimizer of each network, by name.
        scalers: loss scaler of each network in fp16, by name; inactive in other precisions.
        stage: stage of the growth at the last step.
    """

    settings: TrainSettings
    data: Inputs
    strategy: TorchStrategy
    generator: Generator
    discriminator: Discriminator
    average: Generator | None
    optimizers: dict[str, Optimizer]
    scalers: dict[str, torch.amp.GradScaler]
    stage: GrowthStage

    @property
    def best(self) -> Generator:
        """The generator to evaluate: the moving average if there is one."""
        return self.generator if self.average is None else self.average

    def parts(self) -> Parts:
        """Return the networks, optimizers and loss scalers for a checkpoint, by name."""
        average = {} if self.average is None else {"average": self.average}
        return parts(
            generator=self.generator, discriminator=self.discriminator, **average,
            **{f"{name}_optimizer": one for name, one in self.optimizers.items()},
            **{f"{name}_scaler": one for name, one in self.scalers.items()},
        )

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.stage.batch * self.strategy.size,
            metrics.TRAIN_SAMPLES: self.data.train.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.samples,
        }

    def digest(self) -> str:
        """Return a digest of the weights."""
        return digest([self.generator, self.discriminator])

    def before_save(self) -> None:
        """Do nothing before a checkpoint, because no rank has state of its own."""

    def own_state(self) -> dict[str, Any]:
        """Return the entry `about`, which this app adds to a checkpoint.

        `evaluate` and `predict` need it. It describes the network, its growth stage at the time of
        the checkpoint, and the option `--every`.
        """
        return {"about": {
            "shape": dataclasses.asdict(self.data.shape), "size": self.stage.size,
            "fade": self.stage.fade, "every": self.settings.every,
        }}

    def own_result(self) -> dict[str, Any]:
        """Return the app's own entries of `result.json`."""
        return {"size": self.stage.size, "fade_in": self.stage.fade}
