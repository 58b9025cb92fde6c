"""Tests of what other ranks do if a rank ends, and of wrong launches, which are refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from squares import squares
from test_keras_resnet_contract import APP

from trainkit.testing import Program, reading
from trainkit.testing.program import VARIABLES, until
from trainkit.testing.refusals import assert_reported

LIMIT = 30.0
"""Seconds after the end of a rank within which all others must end."""

PATIENCE = 200.0
"""Seconds to wait for ranks to end their training or to write a checkpoint on a slow machine."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Return the command `train` of the app, with a small data set."""
    return Program(APP, squares(tmp_path_factory.mktemp("data") / "squares"))


@contextlib.contextmanager
def started(
    program: Program, out: Path, size: int, *words: str, checkpoint: bool = True
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start ranks without a launcher, so that no launcher ends the other ranks if one rank ends.

    Yields:
        The ranks, after the first checkpoint unless `checkpoint` is False.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", APP.module, *program.words(out, "--batch-size", "6", *words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | VARIABLES | {
                "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            },
        ) for rank in range(size)
    ]
    try:
        if checkpoint:
            until(lambda: bool(reading.checkpoints(out)), ranks[0])
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def without(
    ranks: Sequence[subprocess.Popen[str]], victim: int
) -> list[subprocess.Popen[str]]:
    """Kill one rank; return the others."""
    ranks[victim].kill()
    return [rank for rank in ranks if rank is not ranks[victim]]


def ends(
    ranks: Iterable[subprocess.Popen[str]], within: float = LIMIT
) -> list[tuple[int, str]]:
    """Wait `within` seconds for the ends of ranks; return their exit codes and outputs."""
    limit = time.monotonic() + within
    found = [(rank, rank.communicate(timeout=limit - time.monotonic())[0]) for rank in ranks]
    return [(rank.returncode, said) for rank, said in found]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_end_if_a_rank_is_killed(
    program: Program, tmp_path: Path, victim: int
) -> None:
    words = ["--strategy", "multiworker", "--epochs", "1000"]
    with started(program, tmp_path / "run", 2, *words) as ranks:
        ((code, said),) = ends(without(ranks, victim))
    assert code == 69
    assert_reported(said.replace(f", rank {1 - victim}", ""), "rank-lost")


SERVED = ["--strategy", "parameter-server"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--synchronous"]])
def test_a_training_survives_the_loss_of_a_worker(
    program: Program, tmp_path: Path, words: list[str]
) -> None:
    out = tmp_path / "run"
    with started(program, out, 4, *SERVED, *words, "--epochs", "12") as ranks:
        (code, said), *others = ends(without(ranks, 3), PATIENCE)
    assert code == 0
    assert "warning: worker 1 (rank 3) ended; the training continues with 1 of 2 workers" in said
    assert [one for one, _ in others] == [0, 0]
    assert reading.result(out)["steps"] == 60


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "words"), [
    (0, []), (1, ["parameter server 0 (rank 1)", "--resume auto"]), (2, ["all workers ended"]),
])
def test_the_others_end_if_a_rank_is_lost_that_nobody_replaces(
    program: Program, tmp_path: Path, victim: int, words: list[str]
) -> None:
    with started(program, tmp_path / "run", 3, *SERVED, "--epochs", "1000") as ranks:
        (code, said), (other, _) = ends(without(ranks, victim))
    assert (code, other) == (69, 69)
    place = 1 if victim == 0 else 0
    assert_reported(said.replace(f", rank {place}", ""), "rank-lost", *words)


@pytest.mark.slow
@pytest.mark.parametrize(("receivers", "word"), [
    ([0, 1, 2, 3], "SIGTERM"), ([3], "a signal to another rank"),
])
def test_a_signal_stops_servers_and_workers_and_the_training_resumes(
    program: Program, tmp_path: Path, receivers: list[int], word: str
) -> None:
    out = tmp_path / "run"
    with started(program, out, 4, *SERVED, "--epochs", "12") as ranks:
        for rank in receivers:
            ranks[rank].terminate()
        found = ends(ranks, PATIENCE)
    assert [code for code, _ in found] == [75] * 4, found
    assert_reported(found[0][1].replace(", rank 0", ""), "stopped", word)
    assert not any("error[" in said for _, said in found[1:])
    with started(program, out, 4, *SERVED, "--epochs", "12", "--resume", "auto") as ranks:
        found = ends(ranks, PATIENCE)
    assert [code for code, _ in found] == [0] * 4, found
    assert reading.result(out)["steps"] == 60
    assert int(reading.parts(out)["/optimizer/0"]) == 60, "each update was made once"


@pytest.mark.slow
def test_all_ranks_end_with_the_exit_code_of_the_coordinator(
    program: Program, tmp_path: Path
) -> None:
    words = [*SERVED, "--model", "ResNet51"]
    with started(program, tmp_path / "run", 3, *words, checkpoint=False) as ranks:
        found = ends(ranks, PATIENCE)
    assert [code for code, _ in found] == [2] * 3, found
    assert_reported(found[0][1].replace(", rank 0", ""), "argument-invalid", "ResNet50")


def test_too_few_ranks_for_a_server_are_refused(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0"),
                        ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    assert program.main(tmp_path / "run", *SERVED, "--servers", "2") == 2
    assert_reported(capfd.readouterr().err, "ranks-uneven", "4 ranks", "started 3")


def test_several_ranks_of_one_process_are_refused(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"),
                        ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert program.main(tmp_path / "run", "--strategy", "mirrored") == 2
    assert_reported(capfd.readouterr().err, "ranks-unconnected", "torchrun started 2 ranks")


@pytest.mark.parametrize("config", [
    "{", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}'
])
def test_an_invalid_tf_config_is_refused(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, config: str,
) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert program.main(tmp_path / "run", "--strategy", "multiworker") == 2
    assert_reported(capfd.readouterr().err, "launcher-invalid", "TF_CONFIG")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_horovod_with_keras_3_is_refused(program: Program, tmp_path: Path) -> None:
    """`train` ends with an error, because Horovod's optimizer averages nothing with Keras 3.

    Horovod itself would report no error.
    """
    said = program.train(
        tmp_path / "run", "--strategy", "horovod", code=2, TF_USE_LEGACY_KERAS="0"
    )
    assert_reported(said, "library-missing", "Keras 2", "TF_USE_LEGACY_KERAS=1")


@pytest.mark.slow
def test_more_replicas_than_images_are_refused(
    program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`train` ends with an error before it writes anything.

    With 27 images in batches of 5, the last batch has two images for five replicas.
    """
    said = program.train(
        tmp_path / "run", "--strategy", "mirrored", "--replicas", "5", code=2
    )
    assert_reported(said, "ranks-uneven", " 2 of 27 ")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_missing_gpus_are_named(program: Program, tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("a machine with GPUs")
    said = program.train(
        tmp_path / "run", "--strategy", "mirrored", "--replicas", "2", "--device", "gpu", code=2
    )
    assert_reported(said, "gpu-unavailable", "--device gpu")
