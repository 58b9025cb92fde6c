"""Tests of the --out folder: one writer, and metrics, result and checkpoints that agree."""

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainkit import atomic, metrics, outputs
from trainkit.checkpoint import Checkpoints
from trainkit.energy import open_meters
from trainkit.exits import ArgumentError, DataError
from trainkit.outputs import Outputs
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused


def begin(folder: Path, resume: str = "never", warn: Callable[[str], None] = print) -> Outputs:
    return outputs.open_outputs(
        folder, resume, {"seed": 1}, strategy=Strategy(), keep=2, packages=[], warn=warn
    )


def save(out: Outputs, step: int) -> None:
    state = {"step": step, "identity": {"seed": 1}, "metrics_offset": out.log.position()}
    out.checkpoints.save(step, state)


def is_finished(folder: Path) -> bool:
    return outputs.is_finished(folder, "auto", warn=lambda text: None)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a run that stopped after step 6 of 9, with checkpoints of steps 3 and 6."""
    folder = tmp_path / "run"
    with begin(folder).log as log:
        out = Outputs(folder, Checkpoints(folder / "checkpoints"), log, None, True, {"seed": 1},
                      open_meters(Strategy()))
        for step in range(1, 7):
            log.event(metrics.TRAIN_LOSS, 1.0 / step, step=step)
            if step % 3 == 0:
                save(out, step)
        log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=6)
    return folder


@pytest.fixture
def finished(stopped: Path) -> Path:
    """The folder of the run `stopped`, which has resumed and finished."""
    out = begin(stopped, "auto")
    save(out, 9)
    out.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=9)
    out.finish({"status": "success", "steps": 9})
    out.log.close()
    return stopped


def test_a_finished_run_has_nothing_to_go_on_with(finished: Path) -> None:
    assert is_finished(finished)
    for file in (finished / "checkpoints").iterdir():  # to save space
        file.unlink()
    assert is_finished(finished)


@pytest.mark.parametrize("text", [
    "{}", "[]", "7", "", "{", "\xff", '{"status": "success"}', '{"status": "aborted", "steps": 6}',
    '{"status": "success", "steps": 6}', '{"status": "success", "steps": 9}',
    '{"status": "success", "steps": null}',
])
def test_a_result_that_the_run_contradicts_ends_nothing(stopped: Path, text: str) -> None:
    (stopped / "result.json").write_bytes(text.encode("latin-1"))
    said: list[str] = []
    assert not outputs.is_finished(stopped, "auto", warn=said.append)
    assert "result.json" in said[0]
    out = begin(stopped, "auto")
    out.log.close()
    assert out.state is not None
    assert out.state["step"] == 6
    assert not (stopped / "result.json").exists()
    assert (stopped / "result.json.corrupt").exists()


def forged_end(run: Path) -> None:
    """Write the end of the training into metrics and result, but write no last checkpoint."""
    with metrics.MetricsLog(run / "metrics.jsonl") as log:
        log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=9)
    atomic.write_json(run / "result.json", {"status": "success", "steps": 9})


def no_metrics(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    atomic.write_json(run / "result.json", {"status": "success", "steps": 6})


@pytest.mark.parametrize("forge", [forged_end, no_metrics])
def test_all_three_files_have_to_agree_about_the_end(
    stopped: Path, forge: Callable[[Path], None]
) -> None:
    forge(stopped)
    assert not is_finished(stopped)


def test_a_second_writer_is_refused_and_changes_nothing(stopped: Path) -> None:
    first = begin(stopped, "auto")
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with refused(ArgumentError, "in-use", stopped):
        begin(stopped, "auto")
    assert before == {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    first.log.close()
    begin(stopped, "auto").log.close()


def test_a_writer_that_was_overtaken_does_not_overwrite(tmp_path: Path) -> None:
    """If another run begins between the check and the start of a run, the start is refused."""
    assert not outputs.is_finished(tmp_path, "never", warn=print)
    with begin(tmp_path).log as log:
        log.start(metrics.RUN_START)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with refused(ArgumentError, "run-not-empty", tmp_path):
        begin(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_run_without_checkpoints_is_started_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with outputs.start_new(folder, {"python": "3"}) as log:
        log.start(metrics.RUN_START)
        with refused(ArgumentError, "run-not-empty", folder) as caught:
            outputs.start_new(folder, {})
        assert "--resume" not in str(caught.value)  # such a run cannot be resumed
    assert json.loads((folder / outputs.ENVIRONMENT).read_text()) == {"python": "3"}


def test_a_refused_start_leaves_the_folder_free(tmp_path: Path) -> None:
    begin(tmp_path).log.close()  # ended before its first line
    begin(tmp_path).log.close()


def shorter(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b'"step": 5')])


def garbage(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b'"step": 5')
    path.write_bytes(content[:at] + b"\0" * 9 + content[at + 9 :])


def shifted(path: Path) -> None:
    """Insert spaces into a line, so that the byte positions of later lines change."""
    path.write_bytes(path.read_bytes().replace(b'"step": 5', b'"step":   5'))


@pytest.mark.parametrize("damage", [shorter, garbage, shifted])
def test_metrics_that_a_checkpoint_does_not_fit_lead_to_the_one_before(
    stopped: Path, damage: Callable[[Path], None]
) -> None:
    damage(stopped / "metrics.jsonl")
    said: list[str] = []
    out = begin(stopped, "auto", said.append)
    out.log.close()
    assert out.state is not None
    assert out.state["step"] == 3
    assert "metrics.jsonl" in said[0]
    steps = [line["metadata"]["step"] for line in metrics.parse(out_lines(stopped))]
    assert steps == [1, 2, 3]


def out_lines(run: Path) -> bytes:
    return (run / "metrics.jsonl").read_bytes()


def test_metrics_that_no_checkpoint_fits_are_an_error_before_the_training(stopped: Path) -> None:
    path = stopped / "metrics.jsonl"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    before = out_lines(stopped)
    for resume in ("auto", "auto", str(stopped / "checkpoints" / "step-00000006.npz")):
        with refused(DataError, "run-damaged", "metrics.jsonl, line 1 "):
            begin(stopped, resume)
    assert out_lines(stopped) == before
    assert len(Checkpoints(stopped / "checkpoints").files()) == 2


def test_a_torn_last_line_is_cut_off(stopped: Path) -> None:
    with (stopped / "metrics.jsonl").open("ab") as file:
        file.write(b'{"key": "train_lo')
    out = begin(stopped, "auto")
    out.log.close()
    assert out.state is not None
    assert out.state["step"] == 6
    assert len(metrics.parse(out_lines(stopped))) == 6


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("trapped",)


def plant_pickle(path: Path) -> None:
    """Add a pickle to a checkpoint; loading the pickle would run a command."""
    trap = io.BytesIO()
    np.save(trap, np.array([Trap()], object), allow_pickle=True)
    with zipfile.ZipFile(path) as archive:
        state = json.loads(archive.read("state.json"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("state.json", json.dumps(state | {"trap": {"$array": 0}}))
        archive.writestr("0.npy", trap.getvalue())


def test_a_checkpoint_with_foreign_objects_is_never_executed_and_the_one_before_is_taken(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stopped)
    newest = stopped / "checkpoints" / "step-00000006.npz"
    plant_pickle(newest)
    with refused(DataError, "checkpoint-mismatch", newest, "object"):
        begin(stopped, str(newest))
    said: list[str] = []
    out = begin(stopped, "auto", said.append)
    out.log.close()
    assert out.state is not None
    assert out.state["step"] == 3
    assert "step-00000006.npz" in said[0]
    assert not (stopped / "trapped").exists()


def test_what_is_no_checkpoint_of_a_training_is_refused(stopped: Path) -> None:
    Checkpoints(stopped / "checkpoints").save(8, {"step": 8})
    said: list[str] = []
    out = begin(stopped, "auto", said.append)
    out.log.close()
    assert "step-00000008.npz" in said[0]


PRECIOUS = "do not touch"


@pytest.mark.parametrize("name", [
    "environment.json", ".environment.json.tmp", "result.json", ".result.json.tmp",
])
def test_a_planted_link_is_replaced_and_its_target_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    target = tmp_path / "target"
    target.write_text(PRECIOUS)
    (tmp_path / "run" / name).symlink_to(target)
    out = begin(tmp_path / "run", "auto")
    out.finish({"status": "success"})
    out.log.close()
    assert target.read_text() == PRECIOUS
    for written in ("environment.json", "result.json"):
        assert not (tmp_path / "run" / written).is_symlink()
        json.loads((tmp_path / "run" / written).read_text())


@pytest.mark.parametrize("name", ["step-00000001.npz", ".step-00000001.npz.tmp"])
def test_a_planted_checkpoint_is_replaced_and_its_target_stays(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text(PRECIOUS)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / name).symlink_to(target)
    saved = Checkpoints(tmp_path / "checkpoints").save(1, {"step": 1})
    assert target.read_text() == PRECIOUS
    assert not saved.is_symlink()


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints"])
def test_a_link_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    target = tmp_path / "target"
    target.mkdir() if name == "checkpoints" else target.write_text(PRECIOUS)
    (tmp_path / "run" / name).symlink_to(target)
    with pytest.raises(ArgumentError, match=f"{name} is a link"):
        begin(tmp_path / "run", "auto")
    assert target.is_dir() or target.read_text() == PRECIOUS


def test_a_private_umask_holds_for_every_file(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        out = begin(tmp_path / "run")
        save(out, 1)
        out.finish({})
        out.log.close()
    finally:
        os.umask(before)
    for path in (tmp_path / "run", *(tmp_path / "run").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
