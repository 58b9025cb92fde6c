"""Tests of the settings that a resumed training must not change, and of a rank that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from futuregan.settings import TrainSettings
from futuregan.state import identity
from trainkit import checkpoint, metrics, watchdog
from trainkit.testing import App, Program, reading
from trainkit.testing.identities import may_change
from trainkit.testing.program import ended, until
from trainkit.testing.refusals import assert_reported
from trainkit.torch.strategy import TorchStrategy

FREE = (
    "data out threads resume checkpoint_every keep log_every max_steps backend profile frame_cache "
    "watchdog"
)
TRAINING = """
    --past 3 --future 3 --size 16 --first-size 8 --base-size 8 --width 4 --precision fp32
    --device cpu --stride 4 --transition-epochs 1 --stabilization-epochs 1 --epochs 4
    --batch-size-per-rank 4:3,16:2 --stddev-group 2 --log-every 1 --checkpoint-every 1 --threads 1
    --residual --skip 4 --reconstruction 400 --pretraining-epochs 2
"""
"""Options of a small version of the quickstart, in which two epochs have no adversarial loss.

With 9 clips: 3 steps at 8 pixels and 5 steps that fade in 16 pixels, in which only the generator
is trained; then 10 steps with the adversarial loss."""
STEPS, PRETRAINED = 18, 8
PATIENCE = 10


def test_every_setting_that_shapes_weights_or_curve_is_the_same_when_a_training_goes_on() -> None:
    def of(settings: TrainSettings, data: str = "data") -> dict[str, Any]:
        return identity(settings, SimpleNamespace(name=data), TorchStrategy())

    assert may_change(TrainSettings(), of) == set(FREE.split())
    assert of(TrainSettings(), "other") != of(TrainSettings())


@pytest.fixture(scope="module")
def program(sequences: Path) -> Program:
    """Return the command `train` with `TRAINING`: the adversarial loss begins after two epochs."""
    app = App(Path(__file__).parents[1], TRAINING, STEPS, "", "", "")
    return Program(app, sequences)


@pytest.fixture(scope="module")
def whole(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an uninterrupted run with a checkpoint of each step. Tests must not change it."""
    out = tmp_path_factory.mktemp("whole") / "run"
    program.train(out, "--keep", str(STEPS))
    return out


@pytest.mark.slow
def test_the_discriminator_is_trained_from_the_end_of_the_pretraining_on(whole: Path) -> None:
    losses = dict(reading.values(whole, "critic_loss"))
    assert [step for step, loss in losses.items() if loss == 0] == [*range(1, PRETRAINED + 1)]
    states = [checkpoint.load(file)["parts"] for file in reading.checkpoints(whole)]
    same = [reading.same(one["discriminator"], states[0]["discriminator"]) for one in states]
    assert same == [True] * PRETRAINED + [False] * (STEPS - PRETRAINED)


@pytest.mark.slow
@pytest.mark.parametrize("begins", [
    3, PRETRAINED,
    *(pytest.param(step, marks=pytest.mark.long) for step in (2, PRETRAINED - 1, PRETRAINED + 1)),
])
def test_it_goes_on_to_the_same_bits_from_before_at_and_behind_the_end_of_the_pretraining(
    program: Program, whole: Path, tmp_path: Path, begins: int
) -> None:
    """A run that resumes after step `begins` has the same bits as the uninterrupted run.

    Step 3 is the last step before the growth to 16x16 pixels.
    """
    out = tmp_path / "run"
    program.train(out, "--resume", reading.checkpoints(whole)[begins - 1])
    assert reading.values(out, metrics.RESUMED) == [(begins, begins)]
    assert reading.same(reading.parts(out), reading.parts(whole))


@pytest.mark.slow
@pytest.mark.long
def test_kill_9_before_and_behind_the_end_of_the_pretraining_ends_with_the_same_bits(
    program: Program, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def reached(step: int) -> bool:
        return any(checkpoint.step_of(file) >= step for file in reading.checkpoints(out))

    for step in (1, PRETRAINED - 1, PRETRAINED + 1):
        child = program.start(out, "--resume", "auto")
        until(lambda step=step: reached(step), child)  # type: ignore[misc]
        child.kill()
        child.communicate()
    program.train(out, "--resume", "auto")
    assert len(reading.values(out, metrics.RESUMED)) == 3
    assert reading.same(reading.parts(out), reading.parts(whole))
    assert reading.told(out) == reading.told(whole)


@contextlib.contextmanager
def two_ranks(program: Program, out: Path, *more: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two ranks, and yield their processes.

    No launcher is used, because a launcher would end one rank when the other rank has ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
              "LOCAL_WORLD_SIZE": "2"}
    ranks = [
        program.start(out, "--strategy", "ddp", *more, **shared, RANK=str(rank),
                      LOCAL_RANK=str(rank))
        for rank in range(2)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_training_and_is_named(program: Program, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--watchdog", str(PATIENCE), "--epochs", "2000", "--eval-every", "0")
    with two_ranks(program, out, *words) as (first, second):
        until(lambda: bool(reading.checkpoints(out)), first)
        os.kill(second.pid, signal.SIGSTOP)
        said = ended(first, 69)
        os.kill(second.pid, signal.SIGCONT)
        ended(second, 69)
    assert_reported(said, "rank-lost", ": rank 0 is ", f"rank 1 is {watchdog.SILENT}")
    assert reading.checkpoints(out)  # from which it goes on
