"""The interface between the training of an app and a session (`trainkit.session`).

The session starts or resumes the training, logs it, writes checkpoints, and stops after signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainkit.parts import Parts


@dataclass(frozen=True)
class Course:
    """The length of a training, and the intervals of its reports.

    Attributes:
        steps_per_epoch: batches in an epoch, or in each epoch of the training if they differ.
        planned: steps of the whole training, over which the schedule extends.
        last_step: the step after which this run ends, at most `planned`.
        log_every: steps between log lines.
        checkpoint_every: steps between checkpoints within an epoch.
        eval_every: epochs between evaluations, 0 for none.
        patience: seconds without progress after which hanging ranks end; 0 if they wait forever.
    """

    steps_per_epoch: int | Sequence[int]
    planned: int
    last_step: int
    log_every: int
    checkpoint_every: int
    eval_every: int
    patience: float = 0

    @classmethod
    def of(cls, settings: Any, steps_per_epoch: int | Sequence[int], planned: int) -> Course:
        """Return the course of a training of `planned` steps.

        The course states after which steps the training logs, evaluates, writes checkpoints and
        ends. `settings` has the options that apps share: `--max-steps`, `--log-every`,
        `--checkpoint-every`, `--eval-every` and `--watchdog` of `trainkit.common_options`.
        """
        last = min(planned, settings.max_steps or planned)
        return cls(
            steps_per_epoch, planned, last, log_every=settings.log_every,
            checkpoint_every=settings.checkpoint_every or last, eval_every=settings.eval_every,
            patience=settings.watchdog,
        )

    def steps_in(self, epoch: int) -> int:
        """Return the number of batches in `epoch`, which is counted from 0."""
        counts = self.steps_per_epoch
        return counts if isinstance(counts, int) else counts[min(epoch, len(counts) - 1)]

    @property
    def epochs(self) -> int:
        """The number of epochs of the whole training; an incomplete last epoch counts as one."""
        counts = self.steps_per_epoch
        return -(-self.planned // counts) if isinstance(counts, int) else len(counts)


class Training(Protocol):
    """The interface of an app's training: the methods that a session calls."""

    def parts(self) -> Parts:
        """Return everything that changes with the steps, by name; see `trainkit.parts`."""
        ...

    def facts(self) -> Mapping[str, int]:
        """Return the facts to log at the start of a run, such as the seed: metric key -> value."""
        ...

    def digest(self) -> str:
        """Return a digest of the weights, which must be equal on all ranks."""
        ...

    def before_save(self) -> None:
        """Prepare a checkpoint on all ranks, for example by averaging statistics of each rank."""
        ...

    def own_state(self) -> Mapping[str, Any]:
        """Return the entries that the app adds to a checkpoint.

        They are saved in addition to the result of `parts` and the progress of the training.
        """
        ...

    def own_result(self) -> Mapping[str, Any]:
        """Return the app's own entries of `result.json`."""
        ...


class Watch(Protocol):
    """The interface of a profiler that measures a few steps."""

    @property
    def is_on(self) -> bool:
        """Whether the next step is profiled."""
        ...

    def before(self) -> None:
        """Start the profiler if the next step is the first profiled step."""
        ...

    def after(self, seconds: float, waiting: float, communicating: float) -> str | None:
        """Count a step; return the report after the last profiled step, and None otherwise.

        The arguments are the times of the step, as in `trainkit.progress.Window.add_time`.
        """
        ...
