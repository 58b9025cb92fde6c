"""Tests of the watchdog: it reports where ranks hang in the code, and ends the ranks."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from trainkit import watchdog
from trainkit.testing.refusals import assert_reported
from trainkit.watchdog import Watchdog, spans, summary


class Clock:
    """A clock in seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(watchdog, "GATHER", 0.0)
    return Clock()


@pytest.fixture
def ends() -> list[int]:
    return []


def dogs(
    folder: Path, clock: Clock, ends: list[int], size: int = 2, patience: float = 300
) -> list[Watchdog]:
    """Return the watchdogs of `size` ranks that have done each activity of a training once.

    A watchdog appends the exit status to `ends` instead of ending the process.
    """
    ranks = [
        Watchdog(rank, size, folder, patience, end=ends.append, clock=clock)
        for rank in range(size)
    ]
    for rank in ranks:
        for doing in (READING, STEP, SUMS, READING):
            rank.beat(doing)
    return ranks


READING, STEP, SUMS = "reading data", "making a step", "waiting for the sums of all ranks"


def test_a_wait_is_told_once_with_what_each_rank_does(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = dogs(tmp_path / "hanging", clock, ends)
    first.beat(SUMS)
    second.look(clock.now + 19)
    assert capsys.readouterr().err == ""
    second.look(clock.now + 21)
    first.look(clock.now + 21)
    said = capsys.readouterr().err
    assert said.count("nothing has moved for 21 s") == 1
    assert "rank 1 is reading data (" in said
    assert "watchdog.py:" in said
    assert f"rank 0 is {watchdog.SILENT}" in said  # it had not yet written what it does
    assert ends == []


def test_ranks_end_after_their_patience_and_one_that_is_stopped_is_named(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = dogs(tmp_path / "hanging", clock, ends, size=4)
    for rank in (*ranks[:1], *ranks[2:]):  # the second one was stopped by somebody
        rank.look(clock.now + 301)
    assert ends == [69, 69, 69]
    said = capsys.readouterr().err
    assert said.count("error[rank-lost]") == 1
    assert watchdog.SILENT in said


def test_the_object_of_an_activity_is_named_and_makes_no_other_kind(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    dog = Watchdog(
        0, 2, tmp_path / "hanging", 30, end=ends.append, clock=clock, subject="measurement"
    )
    for size in (4, 8, 16):
        dog.beat("measuring", detail=f"a broadcast of {size} B")
    clock.now = 31
    dog.look(clock.now)
    assert ends == [69]
    said = capsys.readouterr().err
    assert_reported(said, "rank-lost", "measurement", "measuring a broadcast of 16 B (")


def test_the_first_wait_of_each_kind_has_more_patience(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first wait for an activity is reported after 300 s; the run ends after 4 x 300 s.

    In its first steps, a rank compiles code and connects to other ranks.
    """
    rank = Watchdog(0, 2, tmp_path / "hanging", 300, end=ends.append, clock=clock)
    rank.beat(STEP)
    rank.look(299)
    assert capsys.readouterr().err == ""
    rank.look(301)
    assert " 301 s: " in capsys.readouterr().err
    rank.look(1199)
    assert ends == []
    rank.look(1201)
    assert ends == [69]


def test_a_training_of_long_steps_is_left_alone(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    [rank, _] = dogs(tmp_path / "hanging", clock, ends)
    clock.now = 40
    rank.beat(READING)  # forty seconds since the last word
    rank.look(40 + 119)
    assert capsys.readouterr().err == ""
    rank.look(40 + 121)
    assert " 121 s: " in capsys.readouterr().err


@pytest.mark.parametrize("waited", [5.0, 100.0])
def test_a_hang_is_noticed_within_the_seconds_that_were_asked_for(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str],
    waited: float,
) -> None:
    """The rank ends after its patience of 30 s without progress, even after long earlier waits."""
    [rank, _] = dogs(tmp_path / "hanging", clock, ends, patience=30)
    for _ in range(2):
        clock.now += waited
        rank.beat(READING)
    rank.look(clock.now + 30)
    assert_reported(capsys.readouterr().err, "rank-lost", " 30 s")
    assert ends == [69]


def test_one_wait_of_another_kind_makes_nobody_blind(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    [rank, _] = dogs(tmp_path / "hanging", clock, ends)
    for seconds, doing in ((5, STEP), (0.1, "writing a checkpoint"), (60, READING), (1, STEP)):
        clock.now += seconds
        rank.beat(doing)
    rank.look(clock.now + 21)
    assert " 21 s: " in capsys.readouterr().err


@pytest.mark.parametrize("doing", ["evaluating", "writing a checkpoint"])
def test_what_may_take_long_is_left_alone_and_who_waits_for_it_too(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str], doing: str
) -> None:
    slow, other = dogs(tmp_path / "hanging", clock, ends, patience=30)
    for _ in range(3):  # not only for the first time
        slow.beat(doing, slow=True)
    for seconds in range(30):
        slow.look(clock.now + seconds)
        other.look(clock.now + seconds)
    assert capsys.readouterr().err == ""
    for seconds in range(30, 120):
        slow.look(clock.now + seconds)
        other.look(clock.now + seconds)
    assert ends == []
    clock.now += 119
    slow.beat(READING)
    slow.look(clock.now + 1)
    other.look(clock.now)
    other.look(clock.now + 29)
    assert ends == []  # nobody is busy any more, and the other one has been told nothing yet
    other.look(clock.now + 31)
    assert ends == [69]


def test_what_moves_again_is_forgotten(tmp_path: Path, clock: Clock, ends: list[int]) -> None:
    [rank, _] = dogs(tmp_path / "hanging", clock, ends)
    rank.look(30)
    assert list((tmp_path / "hanging").iterdir())
    clock.now = 31
    rank.beat("making a step")
    rank.look(32)
    assert not list((tmp_path / "hanging").iterdir())


def test_a_folder_that_cannot_be_written_hinders_nobody(
    tmp_path: Path, clock: Clock, ends: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    [rank, _] = dogs(tmp_path / "file" / "hanging", clock, ends)
    rank.look(301)
    assert ends == [69]
    assert_reported(capsys.readouterr().err, "rank-lost")


def test_its_thread_watches_and_stops_with_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "GATHER", 0.0)
    ended = threading.Event()
    with Watchdog(0, 2, tmp_path / "hanging", 0.2, end=lambda _: ended.set()):
        assert ended.wait(10)
    single = Watchdog(0, 1, tmp_path / "hanging", 0.2, end=pytest.fail)
    with single:
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("ranks", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([0, 2, 3, 7], "0, 2-3, 7"), ([], "")]
)
def test_spans(ranks: list[int], text: str) -> None:
    assert spans(ranks) == text


def test_those_that_fewest_do_come_first() -> None:
    found: dict[int, tuple[str, str] | None] = {0: ("a", "x"), 1: ("b", "y"), 2: ("a", "x")}
    assert summary(found) == "rank 1 is b (y); ranks 0, 2 are a (x)"
