"""Tests of checkpoints after truncation, flipped bits, a full disk and kill -9."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from trainkit import checkpoint, statefile
from trainkit.checkpoint import Checkpoints
from trainkit.exits import DataError, NoSpaceError
from trainkit.testing.refusals import refused


def state(value: int) -> dict:
    return {"model": {"weight": np.full(1000, value, np.float32)}, "step": int(value), "note": "é"}


def silent(text: str) -> None:
    raise AssertionError(f"unexpected warning: {text}")


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "deep" / "checkpoints")
    assert store.load_newest(silent) is None
    path = store.save(7, state(7))
    assert path.name == "step-00000007.npz"
    loaded = store.load_newest(silent)
    assert loaded is not None
    assert np.array_equal(loaded["model"]["weight"], np.full(1000, 7.0, np.float32))
    assert (loaded["step"], loaded["note"]) == (7, "é")


def test_checkpoints_after_the_one_to_go_on_from_are_set_aside(tmp_path: Path) -> None:
    store, said = Checkpoints(tmp_path, keep=9), []
    for step in (1, 2, 10, 11):
        store.save(step, state(step))
    store.abandon(2, said.append)
    assert [checkpoint.step_of(path) for path in store.files()] == [1, 2]
    assert sorted(path.name for path in tmp_path.glob("*.abandoned")) == [
        "step-00000010.npz.abandoned", "step-00000011.npz.abandoned"
    ]
    assert len(said) == 2
    loaded = store.load_newest(silent)
    assert loaded is not None
    assert loaded["step"] == 2


def test_only_the_last_are_kept_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    (tmp_path / ".step-00000001.npz.tmp").write_bytes(b"of a killed process")
    for step in (1, 2, 99_999_999, 100_000_000):  # by their names the last would be the first
        store.save(step, state(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-100000000.npz", "step-99999999.npz"]
    assert [checkpoint.step_of(p) for p in store.files()] == [99_999_999, 100_000_000]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"\x00\x00\x00@") + 2] ^= 1  # inside the tensor of 2.0
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [truncate, empty, flip])
def test_a_damaged_file_is_set_aside_for_the_one_before(tmp_path: Path, damage) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, state(1))
    damage(store.save(2, state(2)))
    said: list[str] = []
    loaded = store.load_newest(said.append)
    assert loaded is not None
    assert loaded["step"] == 1
    assert len(said) == 1
    assert "step-00000002.npz" in said[0]
    assert "damaged" in said[0]
    assert (tmp_path / "step-00000002.npz.corrupt").exists()
    assert [p.name for p in store.files()] == ["step-00000001.npz"]


def test_a_reader_does_not_rename(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, state(1))
    truncate(store.save(2, state(2)))
    assert store.load_newest([].append, set_aside=False) is not None
    assert len(store.files()) == 2


def test_all_damaged_is_an_error_and_not_a_new_start(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    truncate(store.save(1, state(1)))
    with refused(DataError, "checkpoint-damaged", f"{tmp_path}: ", " 1 "):
        store.load_newest([].append)


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with refused(DataError, "checkpoint-missing", tmp_path / "gone.npz"):
        checkpoint.load(tmp_path / "gone.npz")
    (tmp_path / "notes.npz").write_text("hello")
    with refused(DataError, "checkpoint-damaged", tmp_path / "notes.npz"):
        checkpoint.load(tmp_path / "notes.npz")
    with pytest.raises(ValueError, match=r"notes\.npz"):
        checkpoint.step_of(tmp_path / "notes.npz")
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoints(tmp_path, keep=0)


def test_the_form_of_older_versions_is_told_and_no_training_begins_anew_there(
    tmp_path: Path,
) -> None:
    old = tmp_path / "step-00000004.pt"
    old.write_bytes(b"PK")
    for read in (lambda: checkpoint.load(old), lambda: Checkpoints(tmp_path).load_newest(silent)):
        with refused(DataError, "checkpoint-outdated", old):
            read()


def test_too_little_space_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, state(1))
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with refused(NoSpaceError, "disk-full", "1.1 MB", " 1.0 ", "step-00000001.npz"):
        store.save(2, state(2))
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001.npz"]


def test_a_disk_that_fills_while_writing_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, state(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)  # a file-size limit fails like a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with refused(NoSpaceError, "file-unwritable", "step-00000002.npz"):
            store.save(2, state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001.npz"]
    assert store.load_newest(silent) is not None


SAVER = """
import sys
import numpy as np
from pathlib import Path
from trainkit.checkpoint import Checkpoints
store = Checkpoints(Path(sys.argv[1]))
for step in range(1, 10**6):
    store.save(step, {"step": step, "weight": np.full(3_000_000, step, np.float32)})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_kill_9_while_saving_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(3):
        child.stdout.readline()
    time.sleep(0.013)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    loaded = Checkpoints(tmp_path).load_newest(silent)
    assert loaded is not None
    assert loaded["step"] >= 3
    assert bool((loaded["weight"] == loaded["step"]).all())


def test_a_checkpoint_written_in_the_background_has_the_state_of_its_moment(
    tmp_path: Path,
) -> None:
    store = Checkpoints(tmp_path)
    live = state(1)
    store.start(1, live)
    live["model"]["weight"].fill(2.0)  # the training goes on
    store.start(2, live)
    store.wait()
    assert [checkpoint.load(f)["model"]["weight"][0].item() for f in store.files()] == [1.0, 2.0]


def test_a_failure_in_the_background_is_raised_at_the_next_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    store.start(1, state(1))
    store.wait()

    def full(value: object, file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(statefile, "write", full)
    store.start(2, state(2))
    with refused(NoSpaceError, "file-unwritable", "step-00000001.npz"):
        store.wait()
    store.wait()  # told once
    assert [f.name for f in store.files()] == ["step-00000001.npz"]
