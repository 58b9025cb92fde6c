"""Tests of the training by Keras's own loop, which logs its throughput and loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainkit import metrics
from trainkit.testing import reading
from trainkit.testing.program import VARIABLES
from trainkit.testing.refusals import assert_reported

WORDS = """fit --model resnet50 --size 32 --epochs 2 --max-steps 3 --batch-size-per-rank 5
    --log-every 2 --threads 1 --device cpu"""

pytestmark = pytest.mark.slow


def fit(*words: str | Path, code: int = 0, legacy: str = "1") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "chexnet", *WORDS.split(), *map(str, words)],
        env=os.environ | VARIABLES | {"TF_USE_LEGACY_KERAS": legacy}, capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("legacy", [pytest.param("0", marks=pytest.mark.long), "1"])
def test_it_tells_its_speed_and_its_loss(legacy: str, findings: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = fit("--data", findings, "--out", out, "--channels", "1", legacy=legacy)
    assert "epoch 2/2  step 6/6  loss " in said
    assert [step for step, _ in reading.values(out, metrics.THROUGHPUT)] == [2, 3, 5, 6]
    assert all(0 < loss < 5 for _, loss in reading.values(out, metrics.TRAIN_LOSS))
    assert reading.values(out, metrics.DATA_WAIT) == []  # nobody measured it
    result = json.loads((out / "result.json").read_text())
    assert (result["status"], result["steps"]) == (metrics.SUCCESS, 6)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    said = fit("--synthetic", "--out", tmp_path, code=2)
    assert_reported(said, "run-not-empty", tmp_path)


def test_keras_3_is_refused_for_ranks_with_the_remedy(tmp_path: Path) -> None:
    """With Keras 3 and Horovod, the command ends with an error that names the remedy.

    Horovod's optimizer would average nothing.
    """
    words = ("--synthetic", "--out", tmp_path / "run", "--strategy", "horovod")
    said = fit(*words, code=2, legacy="0")
    assert_reported(said, "library-missing", "Keras 2", "Keras 3", "TF_USE_LEGACY_KERAS=1")
    assert not (tmp_path / "run").exists()
