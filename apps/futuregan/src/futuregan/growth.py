"""Which resolution is trained when, and how far its new layers are faded in."""

from __future__ import annotations

import argparse
import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

STAGE = re.compile(r"(\d{1,5}):(\d{1,7})")


@dataclass(frozen=True)
class BatchSizes:
    """Clips per step and rank, by the side of the frames: larger frames leave room for fewer.

    Attributes:
        stages: (side in pixels from which on, clips), rising.
    """

    stages: tuple[tuple[int, int], ...]

    def at(self, size: int) -> int:
        """Return the clips for frames of `size` pixels."""
        return [count for first, count in self.stages if first <= size][-1]

    def at_most(self, most: int | None) -> BatchSizes:
        """Return the same, or `most` clips where they are more."""
        return BatchSizes(tuple((first, min(count, most or count)) for first, count in self.stages))

    def __str__(self) -> str:
        if len(self.stages) == 1:
            return str(self.stages[0][1])
        return ",".join(f"{first}:{count}" for first, count in self.stages)


def batch_sizes(text: str) -> BatchSizes:
    """Parse `COUNT`, or `SIZE:COUNT,…` with rising sizes from 4.

    Raises:
        argparse.ArgumentTypeError: with what is wrong.
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
    """Epochs of one resolution.

    Attributes:
        size: side of the frames, in pixels.
        epochs: how many.
        fades: whether the layers of this resolution are faded in.
        batch: clips per step and rank.
    """

    size: int
    epochs: int
    fades: bool
    batch: int


@dataclass(frozen=True)
class Moment:
    """Where in the growth a step is.

    Attributes:
        size: side of the frames, in pixels.
        grown: how often the networks have grown.
        fade: how far the newest layers are in, up to 1.
        batch: clips per step and rank.
    """

    size: int
    grown: int
    fade: float
    batch: int


class Growth:
    """All phases: the first size, then for each next one a transition and a stabilization.

    Args:
        first: first side of the frames, in pixels.
        last: last one.
        transition: epochs in which new layers are faded in.
        stabilization: epochs that follow with all of them.
        epochs: of the whole training; None: as the phases say. The last one is as long as it takes.
        batches: clips per step and rank.

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
        """All of them."""
        return self._ends[-1]

    def phase(self, epoch: int) -> Phase:
        """Return the phase of an epoch, counted from 0."""
        return self.phases[min(bisect_right(self._ends, epoch), len(self.phases) - 1)]

    def moment(self, epoch: int, step: int, steps: int) -> Moment:
        """Return where the step is that comes after `step` of the `steps` of an epoch."""
        phase = self.phase(epoch)
        begin = self._ends[self.phases.index(phase)] - phase.epochs
        done = (epoch - begin) * steps + step + 1
        fade = done / (phase.epochs * steps) if phase.fades else 1.0
        grown = (phase.size // self._first).bit_length() - 1
        return Moment(phase.size, grown, fade, phase.batch)
