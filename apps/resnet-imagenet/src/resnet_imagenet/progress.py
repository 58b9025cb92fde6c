"""Where a training stands: what a checkpoint keeps besides weights and optimizer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from trainkit.checkpoint import State


@dataclass
class Window:
    """Sums since the last line of progress; kept in checkpoints, so no window is cut short."""

    images: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0

    def add(self, images: int, loss: float, seconds: float, waiting: float) -> None:
        """Count one step: its images, mean loss, wall time, and wait for data within that."""
        self.images += images
        self.loss += loss * images
        self.seconds += seconds
        self.waiting += waiting


@dataclass
class Progress:
    """The position of a training between two steps.

    Attributes:
        steps_per_epoch: batches in an epoch.
        epoch: the running epoch, counted from 0.
        step: steps made in this epoch.
        seconds: time spent in training steps (without evaluation and checkpoints).
        scores: of the last evaluation.
        window: sums for the next line of progress.
    """

    steps_per_epoch: int
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)

    @property
    def steps_done(self) -> int:
        """Return the updates made since the start of the training."""
        return self.epoch * self.steps_per_epoch + self.step

    @property
    def epoch_is_over(self) -> bool:
        """Return whether every batch of the running epoch was used."""
        return self.step == self.steps_per_epoch

    @property
    def where(self) -> dict[str, int]:
        """Return the metadata of a metric: epoch from 1, and steps done."""
        return {"epoch_num": self.epoch + 1, "step": self.steps_done}

    def next_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.epoch, self.step = self.epoch + 1, 0


def snapshot(network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> State:
    """Return everything that decides how the training goes on."""
    return {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "progress": dataclasses.asdict(progress),
    }


def restore(state: State, network: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a `snapshot` back, and return its position."""
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    values: dict[str, Any] = dict(state["progress"])
    return Progress(**(values | {"window": Window(**values["window"])}))
