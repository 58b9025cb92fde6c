"""Test that a training writes its files, and gives the same result after an interruption."""

from __future__ import annotations

import json
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from trainkit import checkpoint, metrics, outputs
from trainkit.testing import reading
from trainkit.testing.fixtures import Fixtures
from trainkit.testing.program import Program, ended, until
from trainkit.testing.refusals import assert_reported

ENVIRONMENT = {"python", "packages", "strategy", "cpu", "gpu", "allocator", "threads"}
KILLS = 2
SIGNALS = [
    [signal.SIGTERM],
    pytest.param([signal.SIGINT, signal.SIGUSR1, signal.SIGURG], marks=pytest.mark.long),
]


class RunContract(Fixtures):
    """Tests of a finished run, and of runs after `kill -9`, signals and damaged checkpoints."""

    @pytest.mark.slow
    def test_a_run_leaves_what_the_contract_says(self, whole: Path) -> None:
        files = {outputs.METRICS, outputs.ENVIRONMENT, outputs.RESULT, outputs.CHECKPOINTS}
        assert {path.name for path in whole.iterdir()} == files | set(self.app.files)
        environment = json.loads((whole / outputs.ENVIRONMENT).read_text())
        assert environment.keys() >= ENVIRONMENT
        steps = [checkpoint.step_of(path) for path in reading.checkpoints(whole)]
        assert len(steps) == 2
        assert steps[-1] == self.app.steps
        found = {path.name for path in (whole / outputs.CHECKPOINTS).iterdir()}
        names = [f"step-{step:08d}" for step in steps]
        # A sharded state also has a folder of pieces for each checkpoint file.
        assert found - set(names) == {f"{name}.npz" for name in names}
        assert {name for name in found if not name.endswith(".npz")} in (set(), set(names))

    @pytest.mark.slow
    def test_nothing_is_written_outside_of_it_and_no_home_is_needed(
        self, whole: Path, place: Path
    ) -> None:
        assert sorted(path.name for path in place.iterdir()) == ["run", "tmp"]
        assert list((place / "tmp").iterdir()) == []

    @pytest.mark.slow
    def test_metrics_tell_the_whole_run_in_order(self, whole: Path) -> None:
        keys = [line["key"] for line in reading.lines(whole)]
        assert keys[:3] == [metrics.RUN_START, metrics.SEED, metrics.GLOBAL_BATCH_SIZE]
        assert keys[-1] == metrics.RUN_STOP
        for key in (*keys[:3], metrics.RUN_STOP):
            assert keys.count(key) == 1
        last = reading.lines(whole)[-1]["metadata"]
        assert (last[metrics.STATUS], last["step"]) == (metrics.SUCCESS, self.app.steps)

    @pytest.mark.slow
    def test_each_metric_of_the_card_is_told_with_its_step(self, whole: Path) -> None:
        # Only some machines have energy meters. HOST_ENERGY is logged only if a GPU trains.
        unread = {metrics.HOST_ENERGY} | {
            key for line in reading.lines(whole) if line["key"] == metrics.NOT_READABLE
            for key in line["metadata"]["keys"]
        }
        for name, about in self.app.card["metrics"].items():
            found = reading.values(whole, about["key"])
            if not found and about["key"] in {*unread, *self.app.not_of_steps}:
                continue
            steps = [step for step, _ in found]
            assert steps, f"{name}: no {about['key']}"
            assert steps == sorted(set(steps))
            assert 0 < steps[0] <= steps[-1] <= self.app.steps
            factor = about.get("factor", 1)
            bounds = about.get("least", -float("inf")), about.get("most", float("inf"))
            assert all(bounds[0] <= factor * value <= bounds[1] for _, value in found)

    @pytest.mark.slow
    def test_the_result_has_the_last_scores(self, whole: Path) -> None:
        result = reading.result(whole)
        assert (result["status"], result["steps"]) == (metrics.SUCCESS, self.app.steps)
        for about in self.app.card["metrics"].values():
            if "result" in about:
                _, last = reading.values(whole, about["key"])[-1]
                assert result["evaluation"][about["result"]] == last

    @pytest.mark.slow
    def test_kill_9_at_any_moment_and_resume_end_with_the_same_bits(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"
        for _ in range(KILLS):
            before = reading.checkpoints(out)[-1:]
            child = program.start(out, "--resume", "auto")
            until(partial(_has_newer, out, before), child)
            time.sleep(random.uniform(0, 0.1))  # noqa: S311 - any moment will do
            child.kill()
            child.communicate()
        assert not (out / outputs.RESULT).exists(), "it was too quick: give it more steps"
        program.train(out, "--resume", "auto")
        assert len(reading.values(out, metrics.RESUMED)) >= 1
        self.same(out, whole)

    @pytest.mark.slow
    @pytest.mark.parametrize("numbers", SIGNALS, ids=["batch system", "others"])
    def test_a_signal_ends_with_75_after_a_checkpoint_and_it_goes_on_to_the_same_bits(
        self, program: Program, whole: Path, tmp_path: Path, numbers: list[signal.Signals]
    ) -> None:
        out = tmp_path / "run"
        for number in numbers:
            before = _begun(out)
            child = program.start(out, "--resume", "auto")
            until(partial(_has_begun, out, before), child)
            time.sleep(random.uniform(0, 0.1))  # noqa: S311 - any moment will do
            child.send_signal(number)
            said = ended(child, 75)
            newest = checkpoint.step_of(reading.checkpoints(out)[-1])
            assert_reported(said, "stopped", f" {number.name} ", f"step {newest} ")
            assert "Traceback" not in said
            assert reading.lines(out)[-1]["metadata"][metrics.STATUS] == metrics.ABORTED
            assert not (out / outputs.RESULT).exists()
        program.train(out, "--resume", "auto")
        self.same(out, whole)

    @pytest.mark.slow
    def test_a_truncated_checkpoint_is_set_aside_for_the_one_before(
        self, program: Program, whole: Path, unfinished: Path
    ) -> None:
        before, newest = reading.checkpoints(unfinished)
        newest.write_bytes(newest.read_bytes()[:-100])
        said = program.train(unfinished, "--resume", "auto")
        assert f"{newest.name} " in said
        assert newest.with_name(f"{newest.name}.corrupt").exists()
        step = checkpoint.step_of(before)
        assert reading.values(unfinished, metrics.RESUMED) == [(step, step)]
        self.same(unfinished, whole)

    @pytest.mark.slow
    def test_another_seed_gives_other_weights(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        (seed,) = [line for line in reading.lines(whole) if line["key"] == metrics.SEED]
        out = tmp_path / "run"
        assert program.main(out, "--seed", str(seed["value"] + 1)) == 0
        assert not reading.same(reading.parts(out), reading.parts(whole))

    def same(self, out: Path, whole: Path) -> None:
        """Assert that the runs in `out` and `whole` have the same state, metrics and result."""
        assert reading.same(reading.parts(out), reading.parts(whole))
        assert reading.told(out) == reading.told(whole)
        assert reading.result(out) == reading.result(whole)


def _has_newer(out: Path, before: list[Path]) -> bool:
    return reading.checkpoints(out)[-1:] != before


def _has_begun(out: Path, before: int) -> bool:
    return _begun(out) > before


def _begun(out: Path) -> int:
    """Return how many times the training in `out` was started or resumed, from its metrics."""
    if not (out / outputs.METRICS).exists():
        return 0
    return sum(line["key"] in reading.BEGUN for line in reading.lines(out))
