"""Tests of runs that resume with the same bits in half precision, and of the end of a training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_chexnet_contract import APP
from written_findings import image, pack

from chexnet.method import LossScale
from trainkit import metrics, watchdog
from trainkit.testing import Program, reading
from trainkit.testing.program import VARIABLES
from trainkit.testing.refusals import assert_reported

STEPS = 18
LAST = ("--patience", "0", "--stop-after", "2", "--epochs", "9", "--frozen-epochs", "9",
        "--base-lr", "1e-12")
"""Options of a training that learns nothing, and therefore stops early.

The AUROC never rises after the first evaluation, so that the third evaluation ends the training.
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def program(findings: Path) -> Program:
    return Program(APP, findings)


def half(program: Program, folder: Path, *words: str) -> tuple[Path, Path]:
    """Make an uninterrupted run, and one that resumes within an epoch; return both folders.

    `words` are the options of both runs, such as a half precision.
    """
    whole, first, rest = (folder / name for name in ("whole", "first", "rest"))
    words = (*words, "--eval-every", "0")  # at the end of the first there would be one more
    assert program.main(whole, *words) == 0
    assert program.main(first, *words, "--max-steps", "8") == 0
    assert program.main(rest, *words, "--resume", reading.checkpoints(first)[-1]) == 0
    return whole, rest


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_goes_on_to_the_same_bits(
    precision: str, program: Program, tmp_path: Path
) -> None:
    whole, rest = half(program, tmp_path, "--precision", precision)
    assert reading.same(reading.parts(rest), reading.parts(whole))
    losses = [loss for _, loss in reading.values(whole, metrics.TRAIN_LOSS)]
    assert losses[-1] < losses[0]
    fp32 = tmp_path / "fp32"
    assert program.main(fp32) == 0
    assert not reading.same(reading.parts(fp32), reading.parts(whole))


def test_a_step_that_overflows_is_left_out_and_its_scale_is_kept(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LossScale, "FIRST", 2.0**30)
    whole, rest = half(program, tmp_path, "--precision", "fp16", "--frozen-epochs", "0")
    parts = reading.parts(whole)
    left_out = 30 - np.log2(parts["/loss_scale/0"])
    assert 1 <= left_out < STEPS
    assert left_out == int(left_out)
    for one in ("head", "body"):
        assert parts[f"/{one}_optimizer/0"] == STEPS - left_out  # of Keras: its iterations
    assert 0 < parts["/loss_scale/1"] <= STEPS - left_out  # finite ones since the last other
    assert all(np.isfinite(value).all() for value in parts.values()
               if isinstance(value, np.ndarray))
    assert reading.same(reading.parts(rest), parts)


def test_what_the_validation_ends_stays_ended(program: Program, tmp_path: Path) -> None:
    """A run that ended early after a validation does not train further when it is resumed.

    It is killed after its last checkpoint, but before it writes its result."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert program.main(whole, *LAST) == 0
    assert reading.result(whole)["epochs"] == 3
    shutil.copytree(whole, killed)
    (killed / "result.json").unlink()
    assert program.main(killed, *LAST, "--resume", "auto") == 0
    assert reading.told(killed) == reading.told(whole)
    assert reading.result(killed) == reading.result(whole)
    assert reading.same(reading.parts(killed), reading.parts(whole))


@pytest.fixture
def tested(tmp_path: Path) -> Program:
    """The app with a data set that has a test split and findings with published AUROCs."""
    folder = pack(tmp_path / "images", {
        split: [image(seed) for seed in seeds]
        for split, seeds in (("train", range(27)), ("val", range(50, 56)), ("test", range(90, 99)))
    }, classes=("Mass", "Edema"))
    return Program(APP, folder)


def test_test_images_are_looked_at_once_and_decide_nothing(
    tested: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, without = tmp_path / "whole", tmp_path / "without"
    assert tested.main(whole, "--test") == 0
    [(step, auroc)] = reading.values(whole, "test_auroc")
    [(_, better)] = reading.values(whole, "test_better_than_chexnet")
    assert step == STEPS
    assert reading.result(whole)["test"]["auroc"] == auroc
    capsys.readouterr()
    asked = ("evaluate", "--data", str(tested.data), "--out", str(whole), "--json", "--draws", "0")
    assert APP.main(*asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["images"]) == ("test", 9)
    assert auroc == pytest.approx(found["auroc"], abs=1e-6)
    assert better == found["better_than"]["CheXNet"][0]
    assert tested.main(without) == 0
    assert not reading.values(without, "test_auroc")
    assert reading.same(reading.parts(whole), reading.parts(without))
    (whole / "result.json").unlink()  # killed before its end was told
    assert tested.main(whole, "--test", "--resume", "auto") == 0
    assert len(reading.values(whole, "test_auroc")) == 1


def test_a_data_set_without_test_images_cannot_be_tested_on(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(tmp_path / "run", "--test") == 3
    assert_reported(capsys.readouterr().err, "split-missing", "'test'")


HANGING = """
import sys, time
from chexnet import __main__ as app, inputs
from trainkit import session, watchdog

class OfTwo(watchdog.Watchdog):
    def __init__(self, rank, size, folder, patience, writers):
        super().__init__(rank, 2, folder, patience)

def hanging(self, epoch, first=0):
    yield next(whole(self, epoch, first))
    time.sleep(300)

session.Watchdog, whole = OfTwo, inputs.Loader.epoch
inputs.Loader.epoch = hanging
sys.exit(app.main(sys.argv[1:]))
"""
"""A program that runs as one of two ranks and hangs before its second batch."""


def test_a_rank_that_hangs_ends_the_job_and_is_named(program: Program, tmp_path: Path) -> None:
    words = program.words(tmp_path / "run", "--watchdog", "5")
    done = subprocess.run(
        [sys.executable, "-c", HANGING, *words], env=os.environ | VARIABLES, check=False,
        capture_output=True, text=True, timeout=200,
    )
    assert done.returncode == 69, done.stderr
    states = ("rank 0 is reading data (", f"rank 1 is {watchdog.SILENT}")
    assert_reported(done.stderr, "rank-lost", *states)


def test_what_it_ran_with_is_kept_with_horovod(program: Program, tmp_path: Path) -> None:
    assert program.main(tmp_path / "run", "--max-steps", "1") == 0
    packages = json.loads((tmp_path / "run/environment.json").read_text())["packages"]
    assert {"tensorflow-cpu", "keras", "horovod", "chexnet"} <= packages.keys()
