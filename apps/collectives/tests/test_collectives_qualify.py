"""A qualification of three nodes of one rank each, on this host, for real: results, and a hang."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def ranks(out: Path, count: int, *words: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one rank on each of `count` nodes, whose names are n0, n1 and so on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "collectives", "qualify", "--out", str(out), "--device", "cpu",
             "--seconds", "5", "--storage-bytes", "4MiB", *words],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": "0",
                 "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": "1",
                 "SLURMD_NODENAME": f"n{rank}"},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]
    try:
        yield started
    finally:
        for one in started:
            one.kill()
            one.communicate()


def test_three_nodes_are_measured_alone_in_pairs_and_together(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with ranks(out, 3, "--patience", "60") as started:
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
    assert [path.name for path in out.glob("*.bin")] == []


def test_a_rank_that_hangs_is_named_and_ends_the_others(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with ranks(out, 2, "--patience", "5", "--seconds", "60") as (first, second):
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
