"""What a session needs to know of a training: how far it goes, and what of it is to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainkit.parts import Parts


@dataclass(frozen=True)
class Course:
    """How far a training goes, and what comes when.

    Attributes:
        steps_per_epoch: batches in an epoch; of each epoch of the whole training, where they
            differ, as with a batch that changes.
        planned: steps of the whole training, which the schedule spans.
        last_step: the step after which it ends, at most `planned`.
        log_every: steps between lines of progress.
        checkpoint_every: steps between checkpoints within an epoch.
        eval_every: epochs between evaluations, 0 for none.
        patience: seconds without progress after which ranks end that hang; 0: they wait for ever.
    """

    steps_per_epoch: int | Sequence[int]
    planned: int
    last_step: int
    log_every: int
    checkpoint_every: int
    eval_every: int
    patience: float = 0

    def steps_in(self, epoch: int) -> int:
        """Return the batches of `epoch`, counted from 0."""
        counts = self.steps_per_epoch
        return counts if isinstance(counts, int) else counts[min(epoch, len(counts) - 1)]

    @property
    def epochs(self) -> int:
        """The epochs of the whole training."""
        counts = self.steps_per_epoch
        return -(-self.planned // counts) if isinstance(counts, int) else len(counts)


class Training(Protocol):
    """What a session asks of a training."""

    def parts(self) -> Parts:
        """Return what changes with the steps, by name: `trainkit.parts`."""
        ...

    def facts(self) -> Mapping[str, int]:
        """Return what the metrics tell at the start: seed, batch, samples, by their keys."""
        ...

    def digest(self) -> str:
        """Return a digest of the weights, which are the same on all ranks."""
        ...

    def before_save(self) -> None:
        """Do on all ranks what a checkpoint wants, such as averaging what each has by itself."""
        ...

    def own_state(self) -> Mapping[str, Any]:
        """Return what a checkpoint keeps besides parts and progress; its names are the app's."""
        ...

    def own_result(self) -> Mapping[str, Any]:
        """Return what `result.json` has besides what every app's has."""
        ...


class Watch(Protocol):
    """Looks at some steps more closely, as a profiler does."""

    @property
    def is_on(self) -> bool:
        """Whether the next step is watched."""
        ...

    def before(self) -> None:
        """Begin to watch when it is time."""
        ...

    def after(self, seconds: float, waiting: float, communicating: float) -> str | None:
        """Count a step; return what there is to tell after the last one."""
        ...
