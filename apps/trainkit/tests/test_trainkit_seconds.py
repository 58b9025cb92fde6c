"""Tests of the times that a run logs, with a clock that moves only if a test advances it.

A run logs values of a window: the steps since the last log line. No two steps have the same
duration, reading time and number of samples. Therefore the value of a window differs from a sum
over all steps, from a mean of means, and from the value of the last step.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from trainkit import outputs, session, strategy
from trainkit.checkpoint import Checkpoints
from trainkit.exits import RanksDifferError
from trainkit.journal import Evaluation, Words
from trainkit.progress import Progress, Window
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused
from trainkit.training import Course

WORDS = Words({"loss_d": "D", "loss_g": "G"}, {"learning_rate": "lr"}, "samples/s", "be gentle")


class Cost(NamedTuple):
    """The number of samples of a step, and the parts of its time in seconds.

    Attributes:
        read: time to read the batch.
        compute: time to compute.
        gradients: time to wait for the gradients of other ranks.
        sums: time to wait for the sums of the losses over the ranks.
        samples: number of samples.
    """

    read: float
    compute: float
    gradients: float
    sums: float
    samples: int

    @property
    def seconds(self) -> float:
        return self.read + self.compute + self.gradients + self.sums


def cost(step: int) -> Cost:
    """Return the cost of a step; `step` counts from 0 over the whole training.

    The steps 2 and 8 spend no time on sums, because a checkpoint after them waits for the sums.
    """
    sums = 0.0 if step in (2, 8) else 0.125 * (1 + step % 5)
    return Cost(0.5 + step % 3, 2.0 + step, 0.25 * (step % 4), sums, 3 + step % 2)


def losses(step: int) -> tuple[float, float]:
    """Return the values of `loss_d` and `loss_g` in a step, each a mean over the samples."""
    return 1.0 + step, 7.0 / (1 + step)


class Clock:
    """A substitute for `time`, with the functions that a session calls."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Late:
    """A substitute for a sum over the ranks that is still in progress.

    The method `result` waits for the sum: it advances the clock by `seconds`.
    """

    def __init__(self, clock: Clock, seconds: float, values: list[float]) -> None:
        self.clock, self.seconds, self.values = clock, seconds, values

    def result(self) -> list[float]:
        self.clock.now += self.seconds
        return self.values


class Ranks3(Strategy):
    """Rank 0 of three ranks, which differ in their peak memory."""

    def peak_memory(self) -> int:
        return 1000

    def gather(self, value: Any) -> list[Any]:
        return [value, value + 7, value - 5] if isinstance(value, int) else [value] * 3


class Timed:
    """A training with epochs of 5 steps, and a log line after every two steps."""

    def __init__(
        self, out: Path, clock: Clock, course: Course, resume: str = "never",
        ranks: Strategy | None = None,
    ) -> None:
        self.clock, self.strategy, self.stop = clock, ranks or Ranks3(), StopFlag()
        self.array = np.zeros(2)
        self.out = outputs.open_outputs(
            out, resume, {"seed": 1}, strategy=self.strategy, keep=9, packages=[], warn=print
        )
        self.session = Session(self.out, self.strategy, self.stop, course, WORDS, self)

    def run(self) -> Path:
        with self.out.log, self.session.running():
            while not self.session.is_over:
                self.session.begin_epoch()
                batches = self.batches()
                while self.session.has_steps:
                    self.step(batches)
                self.session.end_epoch(self.evaluate)
        return self.out.folder

    def batches(self) -> Iterator[int]:
        while True:
            step = self.session.progress.steps_done
            self.clock.now += cost(step).read
            yield step

    def step(self, batches: Iterator[int]) -> None:
        step = self.session.next_batch(batches)
        its = cost(step)
        self.clock.now += its.compute
        with self.strategy.waiting():
            self.clock.now += its.gradients
        self.array += step
        sums = [loss * its.samples for loss in losses(step)]
        late = Late(self.clock, its.sums, [*sums, float(self.session.stop_asked)])
        self.session.finish_step(its.samples, late, {"learning_rate": 0.5 / (1 + step)})

    def evaluate(self) -> Evaluation:
        with self.strategy.waiting():  # as sums of scores over the ranks do
            self.clock.now += 500.0
        return Evaluation({"eval_sum": 1.0}, {"sum": 1.0}, "sum 1")

    def parts(self) -> dict[str, Timed]:
        return {"weights": self}

    def state_dict(self) -> Mapping[str, Any]:
        return {"array": self.array}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.array[:] = state["array"]

    def facts(self) -> dict[str, int]:
        return {}

    def digest(self) -> str:
        return self.array.tobytes().hex()

    def before_save(self) -> None:
        self.clock.now += 3000.0

    def own_state(self) -> dict[str, Any]:
        return {}

    def own_result(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that session and strategy read; each checkpoint advances it by 10,000 s."""
    clock, write = Clock(), Checkpoints.start
    monkeypatch.setattr(session, "time", clock)
    monkeypatch.setattr(strategy, "time", clock)

    def start(*arguments: Any) -> None:
        clock.now += 10_000.0
        write(*arguments)

    monkeypatch.setattr(Checkpoints, "start", start)
    return clock


@pytest.mark.parametrize(
    ("max_steps", "checkpoint_every", "expected"),
    [(None, None, Course(10, 30, 30, 5, 30, 2, 60)), (12, None, Course(10, 30, 12, 5, 12, 2, 60)),
     (99, 4, Course(10, 30, 30, 5, 4, 2, 60))],
)
def test_a_course_has_the_shared_options(
    max_steps: int | None, checkpoint_every: int | None, expected: Course
) -> None:
    """A run ends after `--max-steps`; by default, it writes a checkpoint only at its end."""
    settings = SimpleNamespace(max_steps=max_steps, log_every=5, eval_every=2, watchdog=60,
                               checkpoint_every=checkpoint_every)
    assert Course.of(settings, 10, 30) == expected


def course(**changed: Any) -> Course:
    return dataclasses.replace(Course(5, 15, 15, 2, 3, 1), **changed)


def values(out: Path, key: str) -> list[Any]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == key]


WINDOWS = [(0, 1), (2, 3), (4,), (5,), (6, 7), (8, 9), (10, 11), (12, 13), (14,)]
"""The steps that each log line covers: a line follows every second step and the end of an epoch."""


def check_windows(out: Path) -> None:
    """Assert that the times in each log line are sums of the costs of the steps in its window."""
    whole = [[cost(step) for step in window] for window in WINDOWS]
    seconds = [sum(its.seconds for its in window) for window in whole]
    samples = [sum(its.samples for its in window) for window in whole]
    wanted = {
        "throughput": [count / took for count, took in zip(samples, seconds, strict=True)],
        "data_wait_fraction": [
            sum(its.read for its in window) / took
            for window, took in zip(whole, seconds, strict=True)
        ],
        "communication_fraction": [
            sum(its.gradients for its in window) / took
            for window, took in zip(whole, seconds, strict=True)
        ],
        **{
            key: [
                sum(losses(step)[at] * cost(step).samples for step in window) / count
                for window, count in zip(WINDOWS, samples, strict=True)
            ]
            for at, key in enumerate(("loss_d", "loss_g"))
        },
        "learning_rate": [0.5 / (1 + window[-1]) for window in WINDOWS],
    }
    assert {key: values(out, key) for key in wanted} == {
        key: pytest.approx(numbers) for key, numbers in wanted.items()
    }


def test_lines_are_of_the_steps_of_their_window_and_of_nothing_else(
    clock: Clock, tmp_path: Path
) -> None:
    out = Timed(tmp_path / "run", clock, course()).run()
    check_windows(out)
    whole = sum(cost(step).seconds for step in range(15))
    assert values(out, "training_seconds") == [pytest.approx(whole)]
    assert json.loads((out / "result.json").read_text())["training_seconds"] == values(
        out, "training_seconds"
    )[0]


@pytest.mark.parametrize("step", [3, 5, 9])
def test_a_window_that_a_checkpoint_cuts_is_as_long_as_if_it_were_whole(
    step: int, clock: Clock, tmp_path: Path
) -> None:
    out = Timed(tmp_path / "run", clock, course()).run()
    (out / "result.json").unlink()
    clock.now = 5.0  # of another process: it says nothing of before
    Timed(out, clock, course(), str(out / "checkpoints" / f"step-{step:08d}.npz")).run()
    check_windows(out)
    whole = sum(cost(step).seconds for step in range(15))
    assert values(out, "training_seconds") == [pytest.approx(whole)]


@pytest.mark.parametrize("last", [1, 7])
def test_steps_after_the_last_line_are_in_the_seconds_of_the_training(
    last: int, clock: Clock, tmp_path: Path
) -> None:
    out = Timed(tmp_path / "run", clock, course(last_step=last)).run()
    whole = sum(cost(step).seconds for step in range(last))
    assert values(out, "training_seconds") == [pytest.approx(whole)]
    result = json.loads((out / "result.json").read_text())
    assert result["training_seconds"] == pytest.approx(whole)
    assert (result["steps"], result["epochs"]) == (last, pytest.approx(last / 5))


def test_the_memory_is_the_most_that_a_rank_had(clock: Clock, tmp_path: Path) -> None:
    out = Timed(tmp_path / "run", clock, course(last_step=2)).run()
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    [line] = [line for line in lines if line["key"] == "peak_memory_bytes"]
    assert (line["value"], line["metadata"]["ranks"]) == (1007, [1000, 1007, 995])


def test_the_memory_of_a_process_is_in_bytes() -> None:
    """`peak_memory` is within 20 % of VmHWM (in KiB) in /proc/self/status, and does not fall."""
    before = Strategy().peak_memory()
    told = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()
    assert told[1] == "kB"
    assert before <= Strategy().peak_memory()
    assert before == pytest.approx(int(told[0]) * 1024, rel=0.2)


def test_waits_add_up(clock: Clock) -> None:
    alone = Strategy()
    for seconds in (2.0, 3.0):
        clock.now += 50.0
        with alone.waiting():
            clock.now += seconds
    assert alone.communicating == 5.0


class Drifting(Timed):
    """A training whose digest of the weights changes with each step."""

    def digest(self) -> str:
        return f"{super().digest()} {self.session.progress.steps_done}"


class Behind(Ranks3):
    """Simulated ranks with different weights at the end of the training.

    After step 5, rank 0 sends the other ranks the digest of its weights after step 4.
    """

    def share(self, value: Any) -> Any:
        return value.replace(" 5", " 4") if isinstance(value, str) else value


def test_ranks_that_differ_at_the_end_are_found_there(clock: Clock, tmp_path: Path) -> None:
    training = Drifting(tmp_path / "run", clock, course(last_step=5), ranks=Behind())
    with refused(RanksDifferError, "ranks-differ", "step 5:"):
        training.run()
    assert not (tmp_path / "run/result.json").exists()


def test_all_that_a_checkpoint_knows_of_the_progress_comes_back() -> None:
    at = Progress(
        7, epoch=3, step=2, before=19, seconds=12.5, closed=19, scores={"top1": 0.5},
        window=Window(9, [3.0, 4.0], 2.0, 0.5, 0.25),
    )
    state = dataclasses.asdict(at)
    assert dataclasses.asdict(Progress.of(state)) == state
    del state["before"]  # of an older version, whose epochs all have as many steps
    assert Progress.of(state).steps_done == 3 * 7 + 2


@pytest.mark.parametrize(("counts", "planned", "epochs", "steps"), [
    (4, 10, 3, [4, 4, 4, 4, 4]), (4, 8, 2, [4, 4, 4, 4, 4]), ((2, 4, 3), 9, 3, [2, 4, 3, 3, 3]),
])
def test_a_course_has_whole_epochs_and_goes_on_as_its_last(
    counts: Any, planned: int, epochs: int, steps: list[int]
) -> None:
    asked = Course(counts, planned, planned, 1, 1, 1)
    assert asked.epochs == epochs
    assert [asked.steps_in(epoch) for epoch in range(5)] == steps


def test_a_training_may_end_after_the_epoch_that_was_ended(clock: Clock, tmp_path: Path) -> None:
    class Early(Timed):
        def evaluate(self) -> Evaluation:
            self.session.end_here()
            return super().evaluate()

    out = Early(tmp_path / "run", clock, course()).run()
    assert json.loads((out / "result.json").read_text())["steps"] == 5
