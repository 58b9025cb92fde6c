"""Where a training stands, between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainkit.exits import DataError
from trainkit.strategy import Pending


@dataclass
class Window:
    """Sums since the last line of progress; kept in checkpoints, so no window is cut short.

    Attributes:
        samples: of all ranks.
        losses: sums over these samples, in the order in which the session names them.
        seconds: of wall time.
        waiting: seconds of them spent waiting for data.
        communicating: seconds of them spent waiting for other ranks.
    """

    samples: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    waiting: float = 0.0
    communicating: float = 0.0

    def add_losses(self, samples: int, losses: Sequence[float]) -> None:
        """Count the samples of one step, on all ranks, and the sums of their losses."""
        self.samples += samples
        before = self.losses or [0.0] * len(losses)
        self.losses = [a + b for a, b in zip(before, losses, strict=True)]

    def add_time(self, seconds: float, waiting: float, communicating: float) -> None:
        """Count one step's wall time, and the waits for data and for other ranks within it."""
        self.seconds += seconds
        self.waiting += waiting
        self.communicating += communicating


@dataclass
class Progress:
    """The position of a training between two steps.

    Attributes:
        steps_per_epoch: batches in the running epoch.
        epoch: the running epoch, counted from 0.
        step: steps made in this epoch.
        before: steps made in the epochs before it.
        seconds: time spent in training steps (without evaluation and checkpoints).
        closed: steps done when an epoch was last ended, its evaluation included.
        scores: of the last evaluation.
        window: sums for the next line of progress.
    """

    steps_per_epoch: int
    epoch: int = 0
    step: int = 0
    before: int = 0
    seconds: float = 0.0
    closed: int = -1
    scores: dict[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Progress:
        """Return the progress in a checkpoint, where `dataclasses.asdict` has put it.

        Raises:
            DataError: it is of something else.
        """
        try:
            # Older checkpoints are of trainings whose epochs all have as many steps.
            before = {"before": state["epoch"] * state["steps_per_epoch"]}
            return cls(**{**before, **state, "window": Window(**state["window"])})
        except (KeyError, TypeError) as error:
            raise DataError("the checkpoint does not say where its training stood") from error

    @property
    def steps_done(self) -> int:
        """Return the updates made since the start of the training."""
        return self.before + self.step

    @property
    def epoch_is_over(self) -> bool:
        """Return whether every batch of the running epoch was used."""
        return self.step == self.steps_per_epoch

    @property
    def where(self) -> dict[str, int]:
        """Return the metadata of a metric: epoch from 1, and steps done."""
        return {"epoch_num": self.epoch + 1, "step": self.steps_done}

    def next_epoch(self, steps: int) -> None:
        """Go to the start of the next epoch, which has so many steps."""
        self.before, self.epoch, self.step = self.steps_done, self.epoch + 1, 0
        self.steps_per_epoch = steps


@dataclass
class Step:
    """A step whose sums are on their way from the other ranks.

    Attributes:
        epoch: its epoch, from 0.
        number: of the step, from 1.
        samples: of all ranks.
        rates: what it was made with, by the keys of the metrics.
        sums: its losses, and how many ranks were asked to stop.
    """

    epoch: int
    number: int
    samples: int
    rates: Mapping[str, float]
    sums: Pending
