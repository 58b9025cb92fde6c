"""Batches of a data set for each rank: order, records, and substitutes for bad records.

An app implements `Making`, which turns records into a batch with DALI, tf.data or threads. This
module implements the common part: it selects the records, their order and their random draws;
gives each rank its slice of the global batch; starts at any step of any epoch; prepares the next
epoch before the current epoch ends; and reports and replaces records that cannot be decoded.
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
    """The part of a global batch that one rank processes, with n records.

    Attributes:
        numbers: record numbers, (n,).
        draws: uniform random numbers in 0..1 for each record, (n, `Making.draws`).
    """

    numbers: NDArray[np.int64]
    draws: NDArray[np.float32]

    def row(self, row: int, number: int) -> Share:
        """Return a share that contains only one record, with the random numbers of one row.

        Args:
            row: row of `draws` with the random numbers of the record.
            number: record number.
        """
        return Share(np.array([number]), self.draws[row : row + 1])


class Source(Protocol[Made]):
    """A stream of batches that are prepared in the background, one for each `Share` in order."""

    def next(self) -> Made:
        """Return the next batch.

        Raises:
            RuntimeError: an image of this batch, or of one of the next `Making.in_flight` batches,
                cannot be decoded. The source cannot be used any more.
        """
        ...

    def close(self) -> None:
        """Stop the work in the background, and do not wait for its end."""
        ...


class Making(Protocol[Made]):
    """The interface that an app implements to convert records to batches of the type `Made`.

    Two objects that compare equal must convert the same records to equal batches.
    """

    @property
    def lanes(self) -> int:
        """Number L of workers, called lanes: lane n makes the batches n, n + L, n + 2 L, …"""
        ...

    @property
    def in_flight(self) -> int:
        """Maximum number of batches in preparation at a time, without those already returned."""
        ...

    @property
    def draws(self) -> int:
        """Number of uniform random numbers per record; 0 if the conversion is deterministic."""
        ...

    def at(self, epoch: int) -> Making[Made]:
        """Return the object that converts records to batches in `epoch`.

        For example, the size of the images may depend on the epoch.
        """
        ...

    def start(self, lanes: Sequence[Iterator[Share]]) -> Source[Made]:
        """Return a stream of batches.

        Each element of `lanes` is an endless iterator for one worker. It yields this rank's share
        of each batch that the worker prepares.
        """
        ...

    def nothing(self) -> Made:
        """Return an empty batch, for a rank that has no samples of the last global batch."""
        ...

    def undecodable(self, share: Share) -> Iterator[tuple[int, str]]:
        """Yield (row in `share`, description of the damage) for each undecodable record."""
        ...


class Loader(Generic[B]):
    """Batches of a data set, prepared in the background.

    Args:
        records: the samples of a split.
        making: conversion of records to batches.
        training: whether each epoch has a new order and new random draws; otherwise all epochs
            are equal.
        batch_per_rank: samples per batch and rank; the last batch of an epoch may have fewer.
        seed: seed of order and draws.
        strategy: strategy that connects the ranks; each rank takes its slice of a global batch.
        bad: counter of records that cannot be decoded; if `bad` is None, the first such record
            raises DataError. A bad record is replaced by the next decodable record of the data set,
            with the random draws of the bad record. Therefore all other samples stay the same, on
            any number of ranks and after a resume.
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
            DataError: more records than tolerated cannot be decoded, a record is malformed, or a
                label is invalid. The message names the record.
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
            # Set the position before the yield, because a caller that takes all batches may not
            # resume this generator.
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
        """Yield, without end, the shares that one worker (lane) of this rank processes.

        A share is the part of a global batch for this rank. The workers take turns: from step
        `first` of `epoch` on, each share goes to the next worker.

        Args:
            epoch: the first epoch.
            first: the first step in this epoch.
            lane: number of the lane, from 0.
            of: number of lanes.
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
        """Return the next batch, after replacing records that cannot be decoded."""
        while True:
            assert self._source is not None  # noqa: S101 - `epoch` has started the source
            try:
                return self._source.next()
            except RuntimeError:
                if not self._replace():
                    raise  # the cause is not a record
                self._start(*self._next)

    def _replace(self) -> bool:
        """Replace undecodable records of batches in preparation; return whether there were any."""
        some = False
        for where, share in sorted(self._recent, key=itemgetter(0)):
            for row, text in self._making.undecodable(share):
                some = True
                self._replaced.setdefault(where, {})[row] = self._substitute(share, row, text)
        return some

    def _substitute(self, share: Share, row: int, text: str) -> int:
        """Return the number of the record that replaces the undecodable record `row` of `share`.

        The replacement is the next record of the data set that can be decoded. It is processed with
        the random numbers of `row`. Each undecodable record is counted; `text` is the defect of the
        first one.
        """
        number = int(share.numbers[row])
        while True:
            self._bad.add(f"{self._records.describe(number)} {text}")
            number = (number + 1) % self.samples
            found = list(self._making.undecodable(share.row(row, number)))
            if not found:
                return number
            text = found[0][1]
