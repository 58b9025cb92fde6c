"""Tests of the loader with a minimal decoder, independent of any app and framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from written_kinds import packed

from trainkit.data.bad import BadRecords, undecodable
from trainkit.data.dataset import open_dataset
from trainkit.data.loader import Loader, Share
from trainkit.data.producer import Producer
from trainkit.data.records import Records
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused

COUNT = 23
BAD = (4, 10, 11)
Batch = list[tuple[int, float, int]]
"""A batch of the decoder `Numbers`: number, random draw and image size of each record."""


class Lane:
    """A worker whose thread makes a batch from each share (the samples of one rank in a step)."""

    def __init__(self, shares: Iterator[Share], make: Callable[[Share], Batch]) -> None:
        self._shares, self._make = shares, make
        self._thread = ThreadPoolExecutor(1)

    def start(self) -> Future[Batch]:
        return self._thread.submit(lambda: self._make(next(self._shares)))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Numbers:
    """A substitute for an app's image decoder: each record contains its number as text.

    If `grows` is true, the image size grows by one every second epoch.
    """

    records: Records
    lanes: int = 1
    draws: int = 1
    size: int = 0
    grows: bool = False
    in_flight = 7

    def at(self, epoch: int) -> Numbers:
        return replace(self, size=epoch // 2) if self.grows else self

    def start(self, lanes: Sequence[Iterator[Share]]) -> Producer[Batch]:
        STARTED.append(self.size)
        return Producer([Lane(lane, self.made) for lane in lanes])

    def nothing(self) -> Batch:
        return []

    def made(self, share: Share) -> Batch:
        draws = share.draws[:, 0].tolist() if self.draws else [0.0] * len(share.numbers)
        return [
            (self.decoded(number), draw, self.size)
            for number, draw in zip(share.numbers.tolist(), draws, strict=True)
        ]

    def decoded(self, number: int) -> int:
        text = self.records.encoded(number).tobytes()
        if not text.isdigit():
            raise RuntimeError("no digits")
        return int(text)

    def undecodable(self, share: Share) -> Iterator[tuple[int, str]]:
        def fails(some: Sequence[int]) -> bool:
            try:
                return not [self.decoded(number) for number in some]
            except RuntimeError:
                return True

        return undecodable(share.numbers.tolist(), fails, lambda one: "has no digits")


STARTED: list[int] = []


@pytest.fixture(autouse=True)
def nothing_started() -> None:
    STARTED.clear()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [([], [b"%d" % number]) for number in range(COUNT)]
    return packed(tmp_path_factory.mktemp("data") / "good", "hdf5", "none", "image", samples)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [([], [b"x" if number in BAD else b"%d" % number]) for number in range(COUNT)]
    return packed(tmp_path_factory.mktemp("data") / "bad", "webdataset", "none", "image", samples)


def loader(
    folder: Path, *, rank: int = 0, ranks: int = 1, batch: int = 6, training: bool = True,
    bad: BadRecords | None = None, lanes: int = 1, grows: bool = False,
) -> Loader[Batch]:
    records = open_dataset(folder, labels=["none"]).records("train")
    return Loader(
        records, Numbers(records, lanes, draws=int(training), grows=grows), training=training,
        batch_per_rank=batch, seed=1, strategy=Strategy(Ranks(rank=rank, size=ranks)), bad=bad,
    )


def tolerant(limit: int = len(BAD)) -> BadRecords:
    bad = BadRecords(limit)
    bad.tell = lambda text: None
    return bad


def numbers(batches: Iterator[Batch]) -> list[int]:
    return [number for batch in batches for number, _, _ in batch]


def test_an_epoch_has_each_record_once_in_the_order_of_the_plan(good: Path) -> None:
    whole = loader(good)
    assert (whole.samples, whole.steps) == (COUNT, 4)
    for epoch in range(3):
        assert numbers(whole.epoch(epoch)) == whole.plan.order(epoch).tolist()
    assert STARTED == [0]  # one epoch after the other: nothing begins anew


def test_order_and_draws_follow_the_seed(good: Path) -> None:
    """NumPy draws the order from (seed, epoch), and random numbers from (seed, epoch, step)."""
    order = np.random.default_rng((1, 4)).permutation(COUNT)  # 1 is the seed of `loader`
    assert loader(good).plan.seed == 1
    for step, batch in enumerate(loader(good).epoch(4)):
        draws = np.random.default_rng((1, 4, step)).random((6, 1), np.float32)
        assert [number for number, _, _ in batch] == order[6 * step : 6 * step + 6].tolist()
        assert [draw for _, draw, _ in batch] == draws[: len(batch), 0].tolist()


def test_an_evaluation_is_the_same_each_time(good: Path) -> None:
    whole = loader(good, training=False)
    for epoch in (0, 5):
        assert numbers(whole.epoch(epoch)) == list(range(COUNT))


@pytest.mark.parametrize("folder", ["good", "damaged"])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_ranks_lanes_and_a_resumed_run_change_nothing(
    folder: str, lanes: int, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue(folder)
    expected = list(loader(place, bad=tolerant()).epoch(1))
    parts = [
        list(loader(place, rank=rank, ranks=3, batch=2, bad=tolerant(), lanes=lanes).epoch(1))
        for rank in range(3)
    ]
    together = zip(*parts, strict=True)
    assert [list(chain.from_iterable(step)) for step in together] == expected
    for first in (1, 3):
        assert list(loader(place, bad=tolerant(), lanes=lanes).epoch(1, first)) == expected[first:]


def test_a_rank_without_a_share_of_the_last_batch_gets_an_empty_one(good: Path) -> None:
    batches = list(loader(good, rank=7, ranks=8, batch=2).epoch(0))  # 16 and 7 records
    assert [len(batch) for batch in batches] == [2, 0]


def test_the_next_record_takes_the_place_and_the_draws_of_a_bad_one(
    good: Path, damaged: Path
) -> None:
    bad = tolerant()
    stand_ins = {4: 5, 10: 12, 11: 12}
    for wanted, found in zip(loader(good).epoch(0), loader(damaged, bad=bad).epoch(0), strict=True):
        assert found == [(stand_ins.get(n, n), draw, size) for n, draw, size in wanted]
    places = sorted(text.split(" (")[0].rpartition("record ")[2] for text in bad.found)
    assert places == ["00000004.png", "00000010.png", "00000011.png"]
    assert all(text.endswith("has no digits") for text in bad.found)


def test_one_bad_record_too_many_ends_it(damaged: Path) -> None:
    with refused(DataError, "image-undecodable", "3 records", "--max-bad-records 2"):
        list(loader(damaged, bad=tolerant(2)).epoch(0))
    with refused(DataError, "image-undecodable", "00000004.png", "--max-bad-records N"):
        list(loader(damaged, training=False).epoch(0))


def test_another_size_begins_anew_at_its_epoch_and_no_other(good: Path) -> None:
    whole = loader(good, grows=True)
    for epoch in range(4):
        assert {size for batch in whole.epoch(epoch) for _, _, size in batch} == {epoch // 2}
    assert STARTED == [0, 1]


def test_an_error_that_is_no_records_own_is_raised(
    good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(making: Numbers, share: Share) -> Batch:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Numbers, "made", broken)
    bad = tolerant()
    with pytest.raises(RuntimeError, match="out of memory"):
        list(loader(good, bad=bad).epoch(0))
    assert bad.found == []
