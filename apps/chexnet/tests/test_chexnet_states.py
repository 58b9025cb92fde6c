"""What is part of the exact resume besides the weights: loss scale, half precision, the end."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from test_chexnet_contract import TestContract as Contract

from chexnet.method import LossScale
from trainkit import metrics
from trainkit.testing import Program, reading

STEPS = 18
LAST = ("--patience", "0", "--stop-after", "2", "--epochs", "9", "--frozen-epochs", "9",
        "--base-lr", "1e-12")
"""Nothing is learned, so the third evaluation ends it."""

pytestmark = pytest.mark.slow


@pytest.fixture
def program(findings: Path) -> Program:
    return Program(Contract.app, findings)


def half(program: Program, folder: Path, *words: str) -> tuple[Path, Path]:
    """Train once, and once to a step within an epoch and from there on; return both runs."""
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
    """Also where it was killed after the checkpoint that knows it, before its end was told."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert program.main(whole, *LAST) == 0
    assert reading.result(whole)["epochs"] == 3
    shutil.copytree(whole, killed)
    (killed / "result.json").unlink()
    assert program.main(killed, *LAST, "--resume", "auto") == 0
    assert reading.told(killed) == reading.told(whole)
    assert reading.result(killed) == reading.result(whole)
    assert reading.same(reading.parts(killed), reading.parts(whole))
