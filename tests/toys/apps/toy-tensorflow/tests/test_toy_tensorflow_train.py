"""The toy obeys the app contract: metrics, exit codes, signals, kill -9 and resume, ranks."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from toy_tensorflow.__main__ import main
from trainkit import checkpoint

STEADY = ["--checkpoint-every", "7", "--log-every", "5", "--device", "cpu"]
SHORT = ["--steps", "400", *STEADY]
LONG = ["--steps", "1000000", *STEADY]


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def values(out: Path, key: str) -> list[float]:
    return [line["value"] for line in lines(out) if line["key"] == key]


def newest(out: Path) -> dict:
    return checkpoint.load(max((out / "checkpoints").iterdir()))


def weights(out: Path) -> list[np.ndarray]:
    parts = newest(out)["parts"]
    return [array for name in ("network", "optimizer") for array in parts[name].values()]


def program(*words: str, ranks: int = 1) -> "subprocess.Popen[str]":
    launcher: list[str] = []
    if ranks > 1:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        launcher = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        words = (*words, "--strategy", "horovod")
    return subprocess.Popen(
        [*launcher, sys.executable, "-m", "toy_tensorflow", "train", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def train(*words: str, code: int = 0, ranks: int = 1) -> str:
    process = program(*words, ranks=ranks)
    said = process.communicate(timeout=240)[0]
    assert process.returncode == code, said
    return said


def until_step(process: "subprocess.Popen[str]", out: Path, step: int) -> None:
    """Wait until a running training has logged `step`."""
    for _ in range(600):
        if (out / "metrics.jsonl").exists() and any(
            line["metadata"].get("step", 0) >= step for line in lines(out)
        ):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    raise AssertionError(f"no step {step}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Do not change it."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train("--out", str(out), *SHORT)
    return out


@pytest.fixture
def unfinished(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run as it was before its end was written down."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    (out / "result.json").unlink()
    return out


@pytest.mark.slow
def test_it_learns_and_tells_so(whole: Path) -> None:
    keys = [line["key"] for line in lines(whole)]
    assert keys[:3] == ["run_start", "seed", "global_batch_size"]
    assert keys[-1] == "run_stop"
    (accuracy,) = values(whole, "eval_accuracy")
    assert accuracy > 0.9
    result = json.loads((whole / "result.json").read_text())
    assert result == {"status": "success", "steps": 400, "evaluation": {"accuracy": accuracy}}


@pytest.mark.slow
def test_a_finished_run_is_left_alone(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", str(whole), *SHORT]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert main(["train", "--out", str(whole), *SHORT, "--resume", "auto"]) == 0
    assert "nothing to go on with" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "said"), [
    ([], "--out DIR is missing"),
    (["--out", "run", "--accumulation", "3"], "no 3 equal parts"),
])
def test_bad_arguments_end_with_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_kill_9_and_resume_lead_to_the_same_bits(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed = program("--out", str(out), *SHORT)
    until_step(killed, out, 30)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (out / "result.json").exists()
    train("--out", str(out), *SHORT, "--resume", "auto")
    pairs = zip(weights(whole), weights(out), strict=True)
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)
    for key in ("train_loss", "eval_accuracy"):
        assert values(out, key) == values(whole, key)
    assert len(values(out, "resumed_from_step")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_ends_it_with_75_after_a_checkpoint(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = program("--out", str(out), *LONG)
    until_step(process, out, 10)
    process.send_signal(signal.Signals[name])
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 75, said
    assert f"stopped by {name}" in said
    assert "Traceback" not in said
    assert f"after step {newest(out)['step']};" in said
    assert lines(out)[-1]["metadata"]["status"] == "aborted"


@pytest.mark.slow
def test_damaged_checkpoints_end_with_3(
    unfinished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (unfinished / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-100])
    assert main(["train", "--out", str(unfinished), *SHORT, "--resume", "auto"]) == 3
    assert "none of its 2 checkpoints can be used" in capsys.readouterr().err


@pytest.mark.slow
def test_a_checkpoint_of_other_settings_is_refused(
    unfinished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--seed", "5", "--resume", "auto"]
    assert main(["train", "--out", str(unfinished), *SHORT, *more]) == 2
    assert "seed: 17 then, 5 now" in capsys.readouterr().err


@pytest.mark.slow
def test_divergence_ends_with_4_and_names_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), *SHORT, "--base-lr", "1e38"]) == 4
    assert "at step " in capsys.readouterr().err


@pytest.mark.slow
def test_two_ranks_train_as_one_does_with_two_parts(tmp_path: Path) -> None:
    pytest.importorskip("horovod.tensorflow", reason="in images; tests/integration has it")
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    one, two = tmp_path / "one", tmp_path / "two"
    train("--out", str(one), *SHORT, "--accumulation", "2")
    train("--out", str(two), *SHORT, "--batch-size-per-rank", "16", ranks=2)
    assert values(two, "train_loss") == pytest.approx(values(one, "train_loss"), rel=1e-5)
    assert values(two, "eval_accuracy") == values(one, "eval_accuracy")
    for mine, other in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
