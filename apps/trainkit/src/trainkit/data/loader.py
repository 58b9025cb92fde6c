"""Batches of a data set for each rank: order, records, stand-ins for bad records, lanes.

An app says how records become a batch (`Making`): by DALI, by tf.data, by threads. What is the
same for all of them is here: which records, in which order, with which draws; that a rank takes
its slice of a global batch; that a training goes on anywhere; that the next epoch is prepared
while one ends; and that a record that cannot be decoded is named and replaced.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainkit.data.bad import BadRecords
from trainkit.data.order import Plan
from trainkit.data.records import Records
from trainkit.strategy import Strategy

B = TypeVar("B")
Made = TypeVar("Made", covariant=True)
Where = tuple[int, int]  # epoch, step


@dataclass(frozen=True)
class Share:
    """What a rank takes of a global batch.

    Attributes:
        numbers: of the records, (n,).
        draws: uniform draws in 0..1 for each, (n, `Making.draws`).
    """

    numbers: NDArray[np.int64]
    draws: NDArray[np.float32]

    def row(self, row: int, number: int) -> Share:
        """Return record `number` alone, with the draws of `row`."""
        return Share(np.array([number]), self.draws[row : row + 1])


class Source(Protocol[Made]):
    """Batches in the order of the shares, prepared in the background."""

    def next(self) -> Made:
        """Return the next batch.

        Raises:
            RuntimeError: an image of it, or of one of the next `Making.in_flight` batches,
                cannot be decoded. The source is of no use then.
        """
        ...

    def close(self) -> None:
        """End what goes on in the background, without waiting."""
        ...


class Making(Protocol[Made]):
    """How records become batches of `Made`; equal ones make equal batches."""

    @property
    def lanes(self) -> int:
        """How many take turns; of L lanes, lane n has the shares n, n + L, and so on."""
        ...

    @property
    def in_flight(self) -> int:
        """Shares, at most, that were taken and whose batches were not yet handed out."""
        ...

    @property
    def draws(self) -> int:
        """Uniform draws that a record needs; 0 where nothing is random."""
        ...

    def at(self, epoch: int) -> Making[Made]:
        """Return how it is done in `epoch`: images may grow over the epochs."""
        ...

    def start(self, lanes: Sequence[Iterator[Share]]) -> Source[Made]:
        """Begin to make batches of the shares of `lanes`, which do not end."""
        ...

    def nothing(self) -> Made:
        """Return a batch of no samples, for a rank that has no share of the last one."""
        ...

    def undecodable(self, share: Share) -> Iterator[tuple[int, str]]:
        """Yield row and defect of each record of `share` that cannot be decoded."""
        ...


class Loader(Generic[B]):
    """Batches of a data set, prepared in the background.

    Args:
        records: the samples of a split.
        making: how they become batches.
        training: in a new order each epoch, with draws of its own; else always the same.
        batch_per_rank: the last batch of an epoch may have fewer.
        seed: seeds order and draws.
        strategy: who else reads the same batches; each rank takes its slice.
        bad: counts records that cannot be decoded; without it the first one is an error.
            The next record in the data set that can be decoded takes the place of a bad
            one, with the random draws of the bad one: so all other samples stay as they
            are, on any number of ranks and after a resume.
    """

    def __init__(
        self,
        records: Records,
        making: Making[B],
        *,
        training: bool,
        batch_per_rank: int,
        seed: int,
        strategy: Strategy,
        bad: BadRecords | None = None,
    ) -> None:
        self.plan = Plan(len(records), batch_per_rank * strategy.size, seed, training)
        self.samples, self.steps = self.plan.samples, self.plan.steps
        self._records, self._making, self._strategy = records, making, strategy
        self._bad = bad or BadRecords()
        self._replaced: dict[Where, dict[int, int]] = {}
        self._recent: deque[tuple[Where, Share]] = deque(maxlen=making.in_flight)
        self._source: Source[B] | None = None
        self._next: Where = (-1, -1)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[B]:
        """Yield the batches of `epoch` from step `first` on.

        Raises:
            DataError: a record cannot be decoded, and no more are tolerated; or it is
                malformed, or its label is none. The message names it.
        """
        epoch = epoch if self.plan.training else 0
        making = self._making.at(epoch)
        if self._next != (epoch, first) or making != self._making:
            self._making = making
            self._start(epoch, first)
        for step in range(first, self.steps):
            self._next = (epoch, step)
            share = self._slice(step)
            batch = self._run() if share.stop > share.start else self._making.nothing()
            # Before the yield: who takes all batches need not ask for one more.
            last = step + 1 == self.steps
            self._next = (self.plan.after(epoch), 0) if last else (epoch, step + 1)
            yield batch

    def _start(self, epoch: int, first: int) -> None:
        if self._source is not None:
            self._source.close()
        self._recent.clear()
        count = self._making.lanes
        lanes = [self._lane(epoch, first, lane, count) for lane in range(count)]
        self._source = self._making.start(lanes)

    def _lane(self, epoch: int, first: int, lane: int, of: int) -> Iterator[Share]:
        """Yield this rank's slices of the global batches, epoch after epoch, without end.

        Of every `of` slices, the one whose turn is `lane`.
        """
        turns = itertools.cycle(range(of))
        while True:
            order = self.plan.order(epoch)
            for step in range(first, self.steps):
                start = step * self.plan.batch
                numbers = order[start : start + self.plan.batch][self._slice(step)].copy()
                if not len(numbers) or next(turns) != lane:
                    continue
                for row, number in self._replaced.get((epoch, step), {}).items():
                    numbers[row] = number
                draws = self.plan.draws(epoch, step, self._making.draws)
                share = Share(numbers, draws[self._slice(step)])
                self._recent.append(((epoch, step), share))
                yield share
            epoch, first = self.plan.after(epoch), 0

    def _slice(self, step: int) -> slice:
        return self.plan.share(step, self._strategy.rank, self._strategy.size)

    def _run(self) -> B:
        """Return the next batch; replace records that cannot be decoded."""
        while True:
            assert self._source is not None  # noqa: S101 - `epoch` started it
            try:
                return self._source.next()
            except RuntimeError:
                if not self._replace():
                    raise  # not for a record's sake
                self._start(*self._next)

    def _replace(self) -> bool:
        """Find substitutes for the bad records of the last batches; return whether any is bad."""
        some = False
        for where, share in sorted(self._recent, key=itemgetter(0)):
            for row, text in self._making.undecodable(share):
                some = True
                self._replaced.setdefault(where, {})[row] = self._substitute(share, row, text)
        return some

    def _substitute(self, share: Share, row: int, text: str) -> int:
        """Return the first record after the bad one that can be decoded with its draws."""
        number = int(share.numbers[row])
        while True:
            self._bad.add(f"{self._records.describe(number)} {text}")
            number = (number + 1) % self.samples
            found = list(self._making.undecodable(share.row(row, number)))
            if not found:
                return number
            text = found[0][1]
