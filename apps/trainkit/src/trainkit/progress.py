"""The position of a training (epoch and step), and its sums since the last log line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainkit.energy import Use, Uses, uses_of
from trainkit.exits import DataError
from trainkit.strategy import Pending


@dataclass
class Window:
    """Sums since the last log line; checkpoints contain them for a resumed run.

    Attributes:
        samples: samples of all ranks.
        losses: sums of the losses over these samples, in the order of `journal.Words.losses`.
        seconds: wall time in seconds.
        waiting: part of `seconds` spent waiting for data.
        communicating: part of `seconds` spent waiting for other ranks.
        energy: energy of the steps since the last log line.
    """

    samples: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    waiting: float = 0.0
    communicating: float = 0.0
    energy: Uses = field(default_factory=dict)

    def add_losses(self, samples: int, losses: Sequence[float]) -> None:
        """Add the samples of one step on all ranks, and the sums of their losses."""
        self.samples += samples
        before = self.losses or [0.0] * len(losses)
        self.losses = [a + b for a, b in zip(before, losses, strict=True)]

    def count_step(self, kinds: Sequence[str], samples: int) -> None:
        """Count one step of `samples` samples in the energy record of each kind of device."""
        for kind in kinds:
            use = self.energy.setdefault(kind, Use())
            use.steps, use.samples = use.steps + 1, use.samples + samples

    def add_energy(self, measured: Uses) -> None:
        """Add `measured`, the energy of the steps counted by `count_step`, to the sums."""
        for kind, use in measured.items():
            self.energy.setdefault(kind, Use()).add(use)

    def add_time(self, seconds: float, waiting: float, communicating: float) -> None:
        """Add the seconds of one step: wall time, waiting for data, and waiting for other ranks."""
        self.seconds += seconds
        self.waiting += waiting
        self.communicating += communicating


@dataclass
class Progress:
    """The position of a training between two steps.

    Attributes:
        steps_per_epoch: batches in the current epoch.
        epoch: the current epoch, counted from 0.
        step: completed steps of this epoch.
        before: completed steps of all previous epochs.
        seconds: time of the training steps in seconds, without evaluations and checkpoints.
        epoch_began: value of `seconds` at the start of the current epoch; NaN if it is unknown.
        closed: value of `steps_done` at the end of the last completed epoch, including its
            evaluation; -1 if no epoch is complete.
        scores: scores of the last evaluation.
        window: sums for the next log line.
        energy: energy of all steps before the steps of `window`.
    """

    steps_per_epoch: int
    epoch: int = 0
    step: int = 0
    before: int = 0
    seconds: float = 0.0
    epoch_began: float = 0.0
    closed: int = -1
    scores: dict[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)
    energy: Uses = field(default_factory=dict)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Progress:
        """Return the progress from `state`, which `dataclasses.asdict` made for a checkpoint.

        Raises:
            DataError: the state is not the progress of a training.
        """
        try:
            # In older checkpoints all epochs have the same number of steps.
            before = {"before": state["epoch"] * state["steps_per_epoch"]}
            if "epoch_began" not in state:  # an older checkpoint: the time of its epoch is unknown
                before["epoch_began"] = math.nan
            window = dict(state["window"])
            window["energy"] = uses_of(window.get("energy", {}))  # older checkpoints have none
            energy = uses_of(state.get("energy", {}))
            return cls(**{**before, **state, "window": Window(**window), "energy": energy})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                "the checkpoint has no progress of a training", code="checkpoint-mismatch"
            ) from error

    @property
    def steps_done(self) -> int:
        """The number of updates since the start of the training."""
        return self.before + self.step

    @property
    def epoch_is_over(self) -> bool:
        """Whether every batch of the current epoch was used."""
        return self.step == self.steps_per_epoch

    @property
    def where(self) -> dict[str, int]:
        """The metadata of a metric: the epoch, counted from 1, and the number of steps."""
        return {"epoch_num": self.epoch + 1, "step": self.steps_done}

    def next_epoch(self, steps: int) -> None:
        """Advance to the start of the next epoch, which has `steps` steps."""
        self.before, self.epoch, self.step = self.steps_done, self.epoch + 1, 0
        self.steps_per_epoch, self.epoch_began = steps, self.seconds


@dataclass
class Step:
    """A step whose sums over the ranks are still being computed.

    Attributes:
        epoch: epoch of the step, from 0.
        number: number of the step, from 1.
        samples: samples of all ranks.
        rates: metric key -> value that determined the step, such as the learning rate.
        sums: sum of each loss, followed by the number of ranks that received a signal to stop.
    """

    epoch: int
    number: int
    samples: int
    rates: Mapping[str, float]
    sums: Pending
