"""Tests of the exit codes and messages of trainings that fail or refuse to start."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from trainkit import metrics, outputs
from trainkit.strategy import Strategy
from trainkit.testing import reading
from trainkit.testing.fixtures import Fixtures
from trainkit.testing.program import Program
from trainkit.testing.refusals import assert_reported

AUTO = ("--resume", "auto")


class EndContract(Fixtures):
    """Tests of trainings that end with an error or refuse to start.

    A training must not overwrite a run, must not put two runs into one folder, and must name the
    fault in its error message.
    """

    @pytest.mark.slow
    def test_a_run_is_never_overwritten_and_a_finished_one_needs_nothing(
        self, program: Program, whole: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = _content(whole)
        assert program.main(whole) == 2
        assert_reported(capsys.readouterr().err, "run-not-empty", whole)
        assert program.main(whole, *AUTO) == 0
        assert "nothing to resume" in capsys.readouterr().out
        assert _content(whole) == before

    @pytest.mark.slow
    def test_a_second_training_in_a_folder_is_refused(
        self, program: Program, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Assert that a restarted batch job is refused while its first training still runs."""
        before = _content(unfinished)
        with (unfinished / outputs.METRICS).open() as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert program.main(unfinished, *AUTO) == 2
        assert_reported(capsys.readouterr().err, "in-use", unfinished)
        assert _content(unfinished) == before

    @pytest.mark.slow
    def test_a_checkpoint_of_other_settings_is_refused(
        self, program: Program, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (seed,) = [
            line["value"] for line in reading.lines(unfinished) if line["key"] == metrics.SEED
        ]
        assert program.main(unfinished, *AUTO, "--seed", str(seed + 1)) == 2
        assert_reported(capsys.readouterr().err, "run-changed", f"seed: {seed} ", f" {seed + 1} ")

    @pytest.mark.slow
    def test_no_usable_checkpoint_ends_with_3_and_leaves_them(
        self, program: Program, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = reading.checkpoints(unfinished)
        for file in files:
            file.write_bytes(file.read_bytes()[:-100])
        assert program.main(unfinished, *AUTO) == 3
        assert_reported(capsys.readouterr().err, "checkpoint-damaged", f" {len(files)} ")
        assert reading.checkpoints(unfinished) == files

    @pytest.mark.slow
    def test_an_earlier_checkpoint_is_gone_on_from_and_later_ones_are_set_aside(
        self, program: Program, whole: Path, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        earlier, later = reading.checkpoints(unfinished)
        assert program.main(unfinished, "--resume", earlier) == 0
        said = capsys.readouterr().out
        assert f"{later.name} is newer than the checkpoint to resume from" in said
        assert later.with_name(f"{later.name}.abandoned").exists()
        assert reading.checkpoints(unfinished) == [earlier, later]
        assert _keys(unfinished) == _keys(whole)

    @pytest.mark.slow
    def test_a_checkpoint_of_another_run_begins_a_new_one(
        self, program: Program, whole: Path, tmp_path: Path
    ) -> None:
        before, out, (earlier, _) = _content(whole), tmp_path / "run", reading.checkpoints(whole)
        assert program.main(out, "--resume", earlier) == 0
        ((step, _),) = reading.values(out, metrics.RESUMED)
        assert earlier.name == f"step-{step:08d}.npz"
        assert reading.result(out)["steps"] == self.app.steps
        assert _content(whole) == before

    @pytest.mark.slow
    def test_a_forged_result_does_not_end_a_training(
        self, program: Program, whole: Path, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (unfinished / outputs.RESULT).write_text("{}")
        assert program.main(unfinished, *AUTO) == 0
        assert "result.json is not the end of this run" in capsys.readouterr().out
        assert reading.result(unfinished) == reading.result(whole)
        assert reading.told(unfinished) == reading.told(whole)

    @pytest.mark.slow
    def test_metrics_that_nobody_could_read_are_found_before_the_training(
        self, program: Program, unfinished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = unfinished / outputs.METRICS
        content = file.read_bytes()
        file.write_bytes(content[:100])
        assert program.main(unfinished, *AUTO) == 3
        assert_reported(capsys.readouterr().err, "run-damaged", f"{file} ", " 100 bytes")
        file.write_bytes(content)
        assert program.main(unfinished, *AUTO) == 0

    @pytest.mark.slow
    def test_divergence_ends_with_4_and_names_the_step(
        self, program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "run"
        assert program.main(out, *self.app.diverging.split()) == 4
        assert_reported(capsys.readouterr().err, "loss-not-finite", "at step ")
        assert reading.lines(out)[-1]["metadata"][metrics.STATUS] == metrics.ABORTED
        assert not (out / outputs.RESULT).exists()

    @pytest.mark.slow
    def test_a_full_disk_ends_with_74_and_keeps_the_checkpoint(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        real, calls = shutil.disk_usage, []

        def full_after_two(path: Any) -> Any:
            calls.append(path)
            return real(path)._replace(free=0) if len(calls) > 2 else real(path)

        out = tmp_path / "run"
        monkeypatch.setattr(shutil, "disk_usage", full_after_two)
        assert program.main(out) == 74
        assert_reported(capsys.readouterr().err, "disk-full", reading.checkpoints(out)[-1].name)
        monkeypatch.undo()
        assert program.main(out, *AUTO) == 0
        assert json.loads((out / outputs.RESULT).read_text())["steps"] == self.app.steps


    @pytest.mark.slow
    def test_a_rank_that_is_gone_ends_with_69(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def lost(*_: Any) -> bool:
            raise ConnectionError("connection reset by peer")

        monkeypatch.setattr(Strategy, "any", lost)
        monkeypatch.setattr(Strategy, "lost", lambda self, error: True)
        assert program.main(tmp_path / "run") == 69
        cause = "(connection reset by peer)"
        assert_reported(capsys.readouterr().err, "rank-lost", cause)

    @pytest.mark.slow
    def test_ranks_that_differ_end_with_70_and_without_a_result(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def other(_: Strategy, value: Any) -> Any:
            is_digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
            return "0" * 64 if is_digest else value

        out = tmp_path / "run"
        monkeypatch.setattr(Strategy, "share", other)
        assert program.main(out) == 70
        assert_reported(capsys.readouterr().err, "ranks-differ", "step 1:")
        assert not (out / outputs.RESULT).exists()

    @pytest.mark.slow
    def test_ctrl_c_before_the_training_ends_with_130_and_leaves_nothing(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(outputs, "open_outputs", interrupted)
        assert program.main(tmp_path / "run") == 130
        assert_reported(capsys.readouterr().err, "stopped")
        assert not (tmp_path / "run").exists()


def _content(out: Path) -> dict[str, bytes]:
    """Return the content of a run's files without `environment.json`, which each start rewrites."""
    return {
        path.name: path.read_bytes() for path in out.rglob("*")
        if path.is_file() and path.name != outputs.ENVIRONMENT
    }


def _keys(out: Path) -> list[tuple[str, Any]]:
    return [(key, where) for key, _, where in reading.told(out)]
