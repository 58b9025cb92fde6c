"""What a checkpoint keeps: everything that decides how a training goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch.optim import Optimizer

from futuregan.growth import Moment
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
"""Settings that may change when a training goes on; all others shape its weights or its curve."""


def identity(settings: TrainSettings, data: Inputs, strategy: TorchStrategy) -> dict[str, Any]:
    """Return the settings, and the data, that a resumed training shares with its checkpoint."""
    values = {**dataclasses.asdict(settings), "batch_size_per_rank":
              str(settings.batch_size_per_rank)}
    facts = {"data": data.name, "ranks": strategy.size}
    return {key: values[key] for key in values if key not in FREE} | facts


@dataclasses.dataclass
class Trained:
    """A training as its checkpoints keep it: `trainkit.training.Training`.

    Attributes:
        settings: of the training.
        data: its batches.
        strategy: this rank and the others.
        generator: what is trained.
        discriminator: its adversary.
        average: moving average of the generator, None without.
        optimizers: of each of the two networks, by name.
        scalers: of the losses in fp16; they do nothing in other precisions.
        moment: where in the growth the last step was.
    """

    settings: TrainSettings
    data: Inputs
    strategy: TorchStrategy
    generator: Generator
    discriminator: Discriminator
    average: Generator | None
    optimizers: dict[str, Optimizer]
    scalers: dict[str, torch.amp.GradScaler]
    moment: Moment

    @property
    def best(self) -> Generator:
        """The generator to evaluate: the moving average where there is one."""
        return self.generator if self.average is None else self.average

    def parts(self) -> Parts:
        """Return what changes with the steps."""
        average = {} if self.average is None else {"average": self.average}
        return parts(
            generator=self.generator, discriminator=self.discriminator, **average,
            **{f"{name}_optimizer": one for name, one in self.optimizers.items()},
            **{f"{name}_scaler": one for name, one in self.scalers.items()},
        )

    def facts(self) -> dict[str, int]:
        """Return what the metrics tell at the start."""
        return {
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.moment.batch * self.strategy.size,
            metrics.TRAIN_SAMPLES: self.data.train.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.samples,
        }

    def digest(self) -> str:
        """Return a digest of the weights."""
        return digest([self.generator, self.discriminator])

    def before_save(self) -> None:
        """Nothing is each rank's own."""

    def own_state(self) -> dict[str, Any]:
        """Return what `evaluate` and `predict` need."""
        return {"about": {
            "shape": dataclasses.asdict(self.data.shape), "size": self.moment.size,
            "fade": self.moment.fade, "every": self.settings.every,
        }}

    def own_result(self) -> dict[str, Any]:
        """Return what the training is of."""
        return {"size": self.moment.size, "fade_in": self.moment.fade}
