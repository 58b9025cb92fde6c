"""Killed trainings on a mesh resume with the same bits; one process can resume them, too."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import packed_text
import pytest

from trainkit.testing import reading
from trainkit.testing.program import LIMIT, VARIABLES, until

TRAINING = """
    --model llama-test --sequence 32 --batch-size 16 --learning-rate 1e-2 --warmup-steps 4
    --steps 40 --precision fp32 --device cpu --log-every 6 --checkpoint-every 4 --strategy mesh
"""
LAYOUTS = {
    "fsdp": "--data-parallel fsdp --dropout 0.1",
    "tensor": "--tensor-parallel 2",
    "pipeline": "--pipeline-parallel 2 --micro-batches 2",
    "zero1": "--data-parallel zero1",
    "zero2": "--data-parallel zero2",
    "ddp": "--data-parallel ddp",
    "context": "--context-parallel 2",
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_text.small(tmp_path_factory.mktemp("data") / "small")


class Job:
    """Ranks of a training, started without a launcher, so that a test can kill each of them."""

    def __init__(self, text: Path, out: Path, *more: str, ranks: int = 2) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = ["train", "--data", str(text), "--out", str(out), *TRAINING.split(), *more]
        common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "language_model", *words], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, env=os.environ | VARIABLES | {
                    name: str(value) for name, value in
                    ({**common, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1"}
                     ).items()
                },
            )
            for rank in range(ranks)
        ]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all ranks."""
        for rank in self.ranks:
            rank.send_signal(number)

    def end(self, *codes: int) -> str:
        """Wait until all ranks exit with one of `codes`, or fail; return the output of rank 0."""
        said = [rank.communicate(timeout=LIMIT)[0] for rank in self.ranks]
        assert {rank.returncode for rank in self.ranks} <= {*codes}, said
        return said[0]


@pytest.mark.parametrize(
    "name",
    [name if name == "fsdp" else pytest.param(name, marks=pytest.mark.long) for name in LAYOUTS],
)
def test_kill_9_of_all_ranks_and_resume_end_with_the_same_bits(
    name: str, text: Path, tmp_path: Path
) -> None:
    words = LAYOUTS[name].split()
    Job(text, tmp_path / "whole", *words).end(0)
    out = tmp_path / "run"
    killed = Job(text, out, *words)
    until(lambda: bool(reading.checkpoints(out)), killed.ranks[0])
    time.sleep(random.uniform(0, 0.1))  # noqa: S311 - any moment will do
    killed.send(signal.SIGKILL)
    killed.end(-signal.SIGKILL)
    assert not (out / "result.json").exists()
    Job(text, out, *words, "--resume", "auto").end(0)
    assert reading.same(reading.parts(out), reading.parts(tmp_path / "whole"))
    assert reading.told(out) == reading.told(tmp_path / "whole")
    assert reading.result(out) == reading.result(tmp_path / "whole")


def test_one_process_resumes_what_two_ranks_began(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    both = Job(text, out, "--tensor-parallel", "2")
    until(lambda: bool(reading.checkpoints(out)), both.ranks[0])
    both.ranks[1].send_signal(signal.SIGTERM)
    both.end(75)
    Job(text, out, "--resume", "auto", ranks=1).end(0)
    begun = [one for one in reading.lines(out) if one["key"] in reading.BEGUN]
    assert [one["metadata"]["ranks"] for one in begun] == [2, 1]
    assert reading.result(out)["steps"] == 40
    losses = [value for _, value in reading.values(out, "train_loss")]
    assert losses[-1] < losses[0] - 1


def test_a_mesh_that_does_not_fit_the_ranks_is_refused(text: Path, tmp_path: Path) -> None:
    said = Job(text, tmp_path / "run", "--tensor-parallel", "3").end(2)
    assert "error[ranks-uneven]: a mesh of pipeline 1 x context 1 x tensor 3" in said
    assert not (tmp_path / "run").exists()
