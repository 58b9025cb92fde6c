"""What a checkpoint keeps: everything that decides how a training goes on."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from resnet_imagenet.inputs import Inputs
from resnet_imagenet.progress import Progress, Window
from resnet_imagenet.settings import WARMUP_EPOCHS, TrainSettings
from trainkit.checkpoint import State
from trainkit.exits import ArgumentError
from trainkit.torch.strategy import TorchStrategy

FREE = {
    "data", "out", "threads", "resume", "checkpoint_every", "keep", "log_every", "max_steps",
    "backend", "compile_cache", "profile", "stage", "max_bad_records",
}
"""Settings that may change when a training goes on; all others shape its weights or its curve."""


def identity(settings: TrainSettings, data: Inputs, ranks: TorchStrategy) -> dict[str, Any]:
    """Return the settings, and the data, that a resumed training shares with its checkpoint."""
    values = dataclasses.asdict(settings)
    if settings.warmup_epochs is None:
        values["warmup_epochs"] = WARMUP_EPOCHS
    facts = {"data": data.name, "ranks": ranks.size, "initial": str(settings.initial)}
    return {key: values[key] for key in values if key not in FREE} | facts


@dataclasses.dataclass(frozen=True)
class Trained:
    """The parts of a training that change with each step.

    Attributes:
        network: the weights.
        optimizer: its momentum; the learning rate follows from the step.
        average: moving average of the weights, None without.
        scaler: of the loss in fp16; it does nothing in other precisions.
    """

    network: nn.Module
    optimizer: Optimizer
    average: AveragedModel | None
    scaler: torch.amp.GradScaler

    @property
    def best(self) -> nn.Module:
        """The network to evaluate: the moving average where there is one."""
        return self.network if self.average is None else self.average.module

    def digest(self) -> str:
        """Return a SHA-256 over all weights."""
        total = hashlib.sha256()
        for parameter in self.network.parameters():
            total.update(parameter.detach().cpu().contiguous().numpy().tobytes())
        return total.hexdigest()

    def snapshot(self, at: Progress) -> State:
        """Return the state after a step, to be written or copied before the next one."""
        state: State = {
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
            "progress": dataclasses.asdict(at),
        }
        if self.average is not None:
            state["average"] = self.average.state_dict()
        return state

    def restore(self, state: State) -> Progress:
        """Put a `snapshot` back, and return its position."""
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        torch.set_rng_state(state["rng"])
        values: dict[str, Any] = dict(state["progress"])
        return Progress(**(values | {"window": Window(**values["window"])}))


def start_from(state: State, network: nn.Module, name: str) -> None:
    """Give `network` the weights of a checkpoint, as the first weights of a second stage.

    Raises:
        ArgumentError: they are of another network.
    """
    try:
        network.load_state_dict(trained_weights(state))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ArgumentError(f"--initial {name} is of another network: {first}") from error


def trained_weights(state: State) -> dict[str, torch.Tensor]:
    """Return the weights and buffers to use from a checkpoint: the moving average if it has one."""
    prefix = "module."
    average: dict[str, torch.Tensor] = state.get("average", {})
    if not average:
        weights: dict[str, torch.Tensor] = state["model"]
        return weights
    return {k.removeprefix(prefix): v for k, v in average.items() if k.startswith(prefix)}
