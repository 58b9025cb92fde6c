"""Tests of real qualifications on several simulated nodes of this host, and of a hanging rank."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def ranks(out: Path, *words: str, on: Sequence[int]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the ranks of a job; the ranks of a node have consecutive numbers.

    Args:
        out: the `--out` folder.
        words: further options.
        on: the number of ranks on each node; the nodes are named n0, n1 and so on.
    """
    places = [(node, local) for node, count in enumerate(on) for local in range(count)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "collectives", "qualify", "--out", str(out), "--device", "cpu",
             "--seconds", "5", "--storage-bytes", "4MiB", *words],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(places)),
                 "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(on[node]),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": "1",
                 "SLURMD_NODENAME": f"n{node}"},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank, (node, local) in enumerate(places)
    ]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.communicate()


def test_three_nodes_are_measured_alone_in_pairs_and_together(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    kept = out / "qualify-0.bin"  # a name like that of the files, which the ranks remove
    kept.write_bytes(b"mine")
    with ranks(out, "--patience", "60", on=[1, 1, 1]) as started:
        for one in started:
            _, errors = one.communicate()
            assert one.returncode == 0, errors
    found = json.loads((out / "qualification.json").read_text())
    assert [node["name"] for node in found["nodes"]] == ["n0", "n1", "n2"]
    assert [node["ranks"] for node in found["nodes"]] == [[0], [1], [2]]
    for node in found["nodes"]:
        assert len(node["gemm_tflop_s"]) == len(node["memory_gb_s"]) == 1
        assert min(*node["gemm_tflop_s"], *node["memory_gb_s"], node["storage_read_gb_s"]) > 0
        assert node["storage_reads_other"]
        assert node["import_first_s"] > 0
        assert node["all_reduce_gb_s"] is None
        assert node["faults"] == []
    assert found["all_reduce_gb_s"] > 0
    measured, every = found["method"]["rounds"], found["method"]["all_rounds"]
    assert every == 3
    assert len(found["pairs"]) == measured >= 1  # one pair and a pause in each round
    result = json.loads((out / "result.json").read_text())
    assert result["evaluation"]["slowest_gemm"] == min(
        node["gemm_tflop_s"][0] for node in found["nodes"]
    )
    assert list(out.glob("*.bin")) == [kept]


def test_a_node_of_one_rank_beside_a_node_of_two_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with ranks(out, "--patience", "60", on=[1, 2]) as started:
        for one in started:
            _, errors = one.communicate()
            assert one.returncode == 0, errors
    found = json.loads((out / "qualification.json").read_text())
    alone, two = found["nodes"]
    assert (alone["ranks"], two["ranks"]) == ([0], [1, 2])
    assert alone["all_reduce_gb_s"] is None
    assert two["all_reduce_gb_s"] > 0
    assert len(two["gemm_tflop_s"]) == 2
    assert found["method"]["node_bytes"] > 0


def test_a_rank_that_hangs_is_named_and_ends_the_others(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with ranks(out, "--patience", "5", "--seconds", "60", on=[1, 1]) as (first, second):
        end = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists():  # the ranks are connected
            assert time.monotonic() < end
            time.sleep(0.1)
        second.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        _, errors = first.communicate(timeout=120)
        assert time.monotonic() - stopped < 60
    assert first.returncode == 69
    assert "error[rank-lost]" in errors
    assert "rank 1 is silent" in errors
