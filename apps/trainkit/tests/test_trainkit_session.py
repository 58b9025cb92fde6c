"""Tests of a session without a framework: losses, log lines, checkpoints, stops, resumes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainkit import checkpoint, outputs
from trainkit.exits import ArgumentError, DivergedError, RanksDifferError, StoppedError
from trainkit.journal import Evaluation, Words
from trainkit.ranks import Ranks
from trainkit.session import Session, has_finished
from trainkit.signals import StopFlag
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused
from trainkit.training import Course

SAMPLES, EPOCHS, STEPS = 4, 3, 5
WORDS = Words({"loss_d": "D", "loss_g": "G"}, {"learning_rate": "lr"}, "samples/s", "be gentle")


class There:
    """A substitute for a sum over the ranks, whose result is there at once, without waiting."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def result(self) -> list[float]:
        return self.values


class Weights:
    """A part of a checkpoint that contains one array."""

    def __init__(self) -> None:
        self.array = np.zeros(2)

    def state_dict(self) -> Mapping[str, Any]:
        return {"array": self.array}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.array[:] = state["array"]


class Adding:
    """A training whose weights are the sum of its batches; `loss` returns the loss of a batch."""

    course = Course(STEPS, EPOCHS * STEPS, EPOCHS * STEPS, 2, 3, 2)

    def __init__(self, out: Path, resume: str = "never", strategy: Strategy | None = None) -> None:
        self.strategy, self.stop = strategy or Strategy(), StopFlag()
        self.weights, self.evaluations, self.saved = Weights(), 0, 0
        self.out = outputs.open_outputs(
            out, resume, {"seed": 1}, strategy=self.strategy, keep=9, packages=[], warn=print
        )
        self.session = Session(self.out, self.strategy, self.stop, self.course, WORDS, self)

    def loss(self, number: float) -> float:
        return number

    def batches(self, epoch: int, first: int) -> Iterator[float]:
        yield from [epoch * 10.0 + step for step in range(first, STEPS)]

    def run(self) -> Adding:
        session = self.session
        with self.out.log, session.running():
            while not session.is_over:
                session.begin_epoch()
                batches = self.batches(session.progress.epoch, session.progress.step)
                while session.has_steps:
                    number = session.next_batch(batches)
                    self.weights.array += number
                    sums = There(self.loss(number) * SAMPLES, 1.0, session.stop_asked)
                    session.finish_step(SAMPLES, sums, {"learning_rate": 0.5})
                session.end_epoch(self.evaluate)
        return self

    def evaluate(self) -> Evaluation | None:
        self.evaluations += 1
        with self.session.counter("evaluating", 1, "batches"):
            found = float(self.weights.array[0])
        if self.session.stop_asked:
            return None
        return Evaluation({"eval_sum": found}, {"sum": found}, f"sum {found:g}")

    def parts(self) -> dict[str, Weights]:
        return {"weights": self.weights}

    def facts(self) -> dict[str, int]:
        return {"seed": 1}

    def digest(self) -> str:
        return self.weights.array.tobytes().hex()

    def before_save(self) -> None:
        self.saved += 1

    def own_state(self) -> dict[str, Any]:
        return {"mine": "é"}

    def own_result(self) -> dict[str, Any]:
        return {"kind": "sums"}


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def told(out: Path) -> list[Any]:
    """Return (key, value, step) of all logged metrics, except times, memory and resumes."""
    timed = {"throughput", "data_wait_fraction", "communication_fraction", "training_seconds",
             "epoch_seconds", "peak_memory_bytes", "resumed_from_step", "not_readable"}
    return [(x["key"], x["value"], x["metadata"].get("step")) for x in lines(out)
            if x["key"] not in timed]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Adding(tmp_path_factory.mktemp("whole") / "run").run().out.folder


def test_a_run_tells_means_over_samples_and_ends_with_a_result(whole: Path) -> None:
    values = {key: [x["value"] for x in lines(whole) if x["key"] == key]
              for key in ("loss_d", "loss_g", "learning_rate", "eval_sum", "seed")}
    # Lines after steps 2, 4 and 5 of the first epoch; then 6, 8, 10; 12, 14, 15.
    means = [0.5, 2.5, 4.0, 10.0, 11.5, 13.5, 20.5, 22.5, 24.0]
    assert values["loss_d"] == pytest.approx(means)
    assert values["loss_g"] == pytest.approx([1 / SAMPLES] * 9)
    assert values["learning_rate"] == [0.5] * 9
    assert values["eval_sum"] == [10.0 + 60.0, 10.0 + 60.0 + 110.0]  # every second epoch, the last
    assert values["seed"] == [1]
    result = json.loads((whole / "result.json").read_text())
    assert result.pop("training_seconds") > 0
    assert result == {
        "status": "success", "steps": 15, "epochs": 3.0, "evaluation": {"sum": 180.0},
        "kind": "sums",
    }
    names = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert names == [f"step-{step:08d}.npz" for step in (3, 5, 6, 9, 10, 12, 15)]


def check_epoch_seconds(out: Path) -> None:
    """Assert that each epoch was logged once, and that the epochs add up to the training time."""
    found = [(x["metadata"]["epoch_num"], x["value"]) for x in lines(out)
             if x["key"] == "epoch_seconds"]
    (total,) = (x["value"] for x in lines(out) if x["key"] == "training_seconds")
    assert [epoch for epoch, _ in found] == [1, 2, 3]
    assert sum(seconds for _, seconds in found) == pytest.approx(total)


def test_the_times_of_the_epochs_add_up(whole: Path) -> None:
    check_epoch_seconds(whole)


@pytest.mark.parametrize("step", [3, 5, 6, 12])
def test_it_goes_on_from_any_checkpoint_to_the_same_end(
    step: int, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    Adding(out).run()
    (out / "result.json").unlink()
    again = Adding(out, str(out / "checkpoints" / f"step-{step:08d}.npz")).run()
    assert again.weights.array.tolist() == [180.0] * 2
    assert again.out.state is not None
    assert again.out.state["mine"] == "é"
    assert told(out) == told(whole)
    check_epoch_seconds(out)
    assert [x["value"] for x in lines(out) if x["key"] == "resumed_from_step"] == [step]


class Changing(Adding):
    """A training whose epochs have 2, 4 and 3 steps, as if the batch size changed."""

    counts = (2, 4, 3)
    course = Course(counts, 9, 9, 2, 3, 2)

    def batches(self, epoch: int, first: int) -> Iterator[float]:
        yield from [epoch * 10.0 + step for step in range(first, self.counts[epoch])]


@pytest.mark.parametrize("step", [2, 3, 6])
def test_epochs_may_have_steps_of_their_own(step: int, tmp_path: Path) -> None:
    out = tmp_path / "run"
    whole = Changing(out).run()
    assert [x["metadata"]["step"] for x in lines(out) if x["key"] == "epoch_stop"] == [2, 6, 9]
    assert json.loads((out / "result.json").read_text())["epochs"] == 3.0
    before = told(out)
    (out / "result.json").unlink()
    again = Changing(out, str(out / "checkpoints" / f"step-{step:08d}.npz")).run()
    assert again.weights.array.tolist() == whole.weights.array.tolist()
    assert told(out) == before


class Stopped(Adding):
    """A training that gets a stop signal at the batch `at`, or in an evaluation if `at` is None."""

    at: float | None = None

    def batches(self, epoch: int, first: int) -> Iterator[float]:
        for number in super().batches(epoch, first):
            if number == self.at:
                self.stop.received = signal.SIGUSR1
            yield number

    def evaluate(self) -> Evaluation | None:
        if self.at is None:
            self.stop.received = signal.SIGUSR1
        return super().evaluate()


@pytest.mark.parametrize(("at", "step"), [(12.0, 8), (None, 10)])
def test_a_stop_leaves_a_checkpoint_and_the_run_goes_on_to_the_same_end(
    at: float | None, step: int, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    training = Stopped(out)
    training.at = at
    with refused(StoppedError, "stopped", "SIGUSR1", f"step {step} of 15;"):
        training.run()
    assert lines(out)[-1]["metadata"]["status"] == "aborted"
    assert Adding(out, "auto").run().weights.array.tolist() == [180.0] * 2
    assert told(out) == told(whole)


class Diverging(Adding):
    """A training with an infinite loss for the batch 2."""

    def loss(self, number: float) -> float:
        return float("inf") if number == 2 else number


def test_a_loss_that_is_not_finite_is_named_with_its_step(tmp_path: Path) -> None:
    named = ("D is inf", "step 3 (epoch 1, learning rate 0.5)", "be gentle")
    with refused(DivergedError, "loss-not-finite", *named):
        Diverging(tmp_path / "run").run()


class Exploding(Adding):
    """A training with finite losses, in which a weight becomes infinite at the batch `at`."""

    at = 0.0

    def loss(self, number: float) -> float:
        if number == self.at:
            self.weights.array[1] = np.inf
        return number


@pytest.mark.parametrize(("at", "step"), [(10.0, 6), (14.0, 10)])
def test_weights_that_are_not_finite_take_no_checkpoints_place(
    at: float, step: int, tmp_path: Path
) -> None:
    """A training whose weights become infinite keeps its last finite checkpoint, and fails.

    The failure is in the middle of an epoch, or at its end before an evaluation.
    """
    out = tmp_path / "run"
    training = Exploding(out)
    training.at = at
    named = ("weights.array ", f"step {step},", "be gentle")
    with refused(DivergedError, "state-not-finite", *named):
        training.run()
    assert lines(out)[-1]["metadata"]["status"] == "aborted"
    training.out.checkpoints.wait()
    kept = [checkpoint.load(path) for path in training.out.checkpoints.files()]
    assert kept[-1]["step"] < step
    assert all(np.isfinite(state["parts"]["weights"]["array"]).all() for state in kept)


class Overflowing(Adding):
    """A training with finite weights, whose evaluation returns NaN."""

    def evaluate(self) -> Evaluation | None:
        return Evaluation({"eval_sum": float("nan")}, {"sum": float("nan")}, "sum nan")


def test_an_evaluation_that_is_not_finite_ends_the_training(tmp_path: Path) -> None:
    with refused(DivergedError, "state-not-finite", "eval_sum ", "step 10,", "be gentle"):
        Overflowing(tmp_path / "run").run()
    assert lines(tmp_path / "run")[-1]["metadata"]["status"] == "aborted"


class Another(Strategy):
    """A rank to which rank 0 sends another digest, as if its weights differed."""

    def share(self, value: Any) -> Any:
        return "another" if isinstance(value, str) else value


def test_ranks_that_differ_are_found_after_the_first_step(tmp_path: Path) -> None:
    with refused(RanksDifferError, "ranks-differ", "step 1:"):
        Adding(tmp_path / "run", strategy=Another()).run()


def test_other_ranks_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = Adding(tmp_path / "run", strategy=Strategy(Ranks(rank=1, size=2)))
    training.run()
    assert training.saved > 0  # they take part in what is done before a checkpoint
    assert not (tmp_path / "run").exists()
    assert capsys.readouterr().out == ""


def test_a_finished_run_is_told_and_a_used_folder_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert has_finished(whole, "auto", Strategy())
    assert "nothing to resume" in capsys.readouterr().out
    assert not has_finished(tmp_path / "new", "never", Strategy())
    with refused(ArgumentError, "run-not-empty", whole):
        has_finished(whole, "never", Strategy())
