"""The schedule of the progressive growth: resolution, fade-in factor and batch of each step."""

from __future__ import annotations

import argparse
import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

STAGE = re.compile(r"(\d{1,5}):(\d{1,7})")


@dataclass(frozen=True)
class BatchSizes:
    """Numbers of clips per step and rank, which depend on the side of the frames.

    Attributes:
        stages: pairs (smallest side in pixels, number of clips), in ascending order of the sides.
    """

    stages: tuple[tuple[int, int], ...]

    def at(self, size: int) -> int:
        """Return the number of clips for frames with a side of `size` pixels."""
        return [count for first, count in self.stages if first <= size][-1]

    def at_most(self, most: int | None) -> BatchSizes:
        """Return the same batch sizes, each limited to `most` clips; None: no limit."""
        return BatchSizes(tuple((first, min(count, most or count)) for first, count in self.stages))

    def __str__(self) -> str:
        if len(self.stages) == 1:
            return str(self.stages[0][1])
        return ",".join(f"{first}:{count}" for first, count in self.stages)


def batch_sizes(text: str) -> BatchSizes:
    """Return the batch sizes in a text: `COUNT`, or `SIZE:COUNT,…` with ascending sizes from 4.

    COUNT is the number of clips per step and rank. It holds from frames with a side of SIZE pixels
    up to the next SIZE.

    Raises:
        argparse.ArgumentTypeError: the text is malformed.
    """
    found = [STAGE.fullmatch(word) for word in (f"4:{text}" if text.isdigit() else text).split(",")]
    stages = tuple((int(match[1]), int(match[2])) for match in found if match)
    sizes = [size for size, _ in stages]
    if None in found or not all(count for _, count in stages):
        raise argparse.ArgumentTypeError(
            f"must be COUNT, or SIZE:COUNT,… as in 4:32,16:16,64:4, got '{text[:40]}'"
        )
    if sizes[0] != 4 or sizes != sorted(set(sizes)):
        raise argparse.ArgumentTypeError(f"sizes must begin at 4 and rise, got '{text[:40]}'")
    return BatchSizes(stages)


@dataclass(frozen=True)
class Phase:
    """Consecutive epochs at one resolution.

    Attributes:
        size: side of the frames, in pixels.
        epochs: number of epochs.
        fades: whether the layers of this resolution are faded in during these epochs.
        batch: clips per step and rank.
    """

    size: int
    epochs: int
    fades: bool
    batch: int


@dataclass(frozen=True)
class GrowthStage:
    """The state of the growth at one step.

    Attributes:
        size: side of the frames, in pixels.
        grown: number of times that the networks have grown.
        fade: weight of the newest layers, 0..1.
        batch: clips per step and rank.
    """

    size: int
    grown: int
    fade: float
    batch: int


class Growth:
    """All phases of a training: the first size, then two phases for each larger size.

    In the first phase of a size, the transition, its layers are faded in. In the second phase, the
    stabilization, all layers have full weight.

    Args:
        first: first side of the frames, in pixels.
        last: last side of the frames, in pixels.
        transition: number of epochs in which new layers are faded in.
        stabilization: number of epochs that follow, with the new layers at full weight.
        epochs: number of epochs of the whole training, which sets the length of the last phase.
            None if the last phase is a stabilization like the others.
        batches: number of clips per step and rank.

    Raises:
        ValueError: the epochs end before the last size is trained.
    """

    def __init__(
        self, first: int, last: int, transition: int, stabilization: int, epochs: int | None,
        batches: BatchSizes,
    ) -> None:
        phases = []
        size = first
        while size <= last:
            batch = batches.at(size)
            if size > first:
                phases.append(Phase(size, transition, True, batch))
            phases.append(Phase(size, stabilization, False, batch))
            size *= 2
        planned = sum(phase.epochs for phase in phases)
        if epochs is not None:
            end = phases.pop()
            left = epochs - planned + end.epochs
            if left < 1:
                raise ValueError(f"{epochs} epochs end before frames of {last} pixels are trained")
            phases.append(Phase(end.size, left, False, end.batch))
        self.phases = [phase for phase in phases if phase.epochs]
        self._first = first
        self._ends = list(accumulate(phase.epochs for phase in self.phases))

    @property
    def epochs(self) -> int:
        """The number of epochs of the whole training."""
        return self._ends[-1]

    def phase(self, epoch: int) -> Phase:
        """Return the phase of an epoch, counted from 0."""
        return self.phases[min(bisect_right(self._ends, epoch), len(self.phases) - 1)]

    def stage(self, epoch: int, step: int, steps: int) -> GrowthStage:
        """Return the stage of the growth at one step.

        Args:
            epoch: epoch of the step, counted from 0.
            step: number of the step in the epoch, counted from 0.
            steps: number of steps of the epoch.
        """
        phase = self.phase(epoch)
        begin = self._ends[self.phases.index(phase)] - phase.epochs
        done = (epoch - begin) * steps + step + 1
        fade = done / (phase.epochs * steps) if phase.fades else 1.0
        grown = (phase.size // self._first).bit_length() - 1
        return GrowthStage(phase.size, grown, fade, phase.batch)
