"""The app collectives in its container: on two nodes of Slurm, and on a network of known rate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cluster
import tinyapp
from inside import inside
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

pytestmark = [
    pytest.mark.trains, pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]
DELAY_MS, RATE_MBIT = 20.0, 80.0
PAYLOAD = 1448 / 1514
"""Share of the payload in the bytes of an Ethernet frame that tbf counts.

An MTU of 1,500 bytes includes 20 bytes of IP and 32 of TCP with timestamps; tbf also counts the 14
bytes of the Ethernet header.
"""


@pytest.fixture
def built() -> BuiltImage:
    """Build the image of the app."""
    image = definition.load("collectives-torch-cpu")
    return Apptainer().build(image, base=None, offline=False, reporter=Silent())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a Slurm cluster of two nodes, and return its folder."""
    folder = tmp_path_factory.mktemp("c")
    cluster.start(folder)
    try:
        yield folder
    finally:
        cluster.stop(folder)


def content(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "collectives.json").read_text())
    assert isinstance(found, dict)
    return found


def test_two_nodes_measure_all_operations_as_a_job(
    built: BuiltImage, slurm: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(yaml.safe_dump({"clusters": {"own": {"mpi": "pmi2"}}}))
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf"), "TRIMARAN_SITE": str(site)}
    out = tmp_path / "run"
    done = tinyapp.call(["submit", "collectives/cpu-2node-throughput", "--set", "max-bytes=64KiB",
                         "--set", "repetitions=3", "--out", str(out)], env)
    assert done.returncode == 0, done.stderr
    end = time.monotonic() + 200
    while True:
        rows = json.loads(tinyapp.call(["status", str(out), "--json"], env).stdout)
        if rows[0]["state"] == "completed":
            break
        assert rows[0]["state"] not in ("failed", "lost"), (out / "log.txt").read_text()
        assert time.monotonic() < end, rows
        time.sleep(0.5)
    done = tinyapp.call(["report", str(out)], env)
    assert done.returncode == 5, done.stdout + done.stderr  # other arguments: no reference
    found = content(out)
    assert (found["library"], found["ranks"]) == ("torch", 2)
    sizes = {point["size"] for point in found["points"] if point["operation"] == "all-reduce"}
    assert sizes == {4 << step for step in range(15)}


@pytest.mark.alone  # another program delays the frames, which this measures
def test_a_known_delay_and_rate_are_found(built: BuiltImage, tmp_path: Path) -> None:
    """Between hosts with 20 ms and 80 Mbit/s, the fitted latency and rate are right within 10 %."""
    if shutil.which("tc") is None:
        pytest.fail("tc is missing (Debian: iproute2)")
    words = [
        "python", "-m", "collectives", "measure", "--out=/out/run", "--library=torch",
        "--device=cpu", "--operations=latency", "--min-bytes=256", "--max-bytes=4MiB",
        "--factor=2", "--repetitions=3", "--warmup=3", "--point-seconds=0.6",
    ]
    argv, env = inside(built, tmp_path, words)
    script = Path(__file__).parents[1] / "two_hosts.py"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", sys.executable, str(script),
         "--delay-ms", str(DELAY_MS), "--rate-mbit", str(RATE_MBIT), "--", *argv],
        env={**env, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        capture_output=True, text=True, check=False, timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [fit] = [fit for fit in content(tmp_path / "run")["fits"] if fit["operation"] == "latency"]
    assert fit["ranges"][0]["alpha_us"] == pytest.approx(1000 * DELAY_MS, rel=0.1)
    wire = RATE_MBIT * PAYLOAD / 8 / 1000
    assert fit["ranges"][-1]["gb_s"] == pytest.approx(wire, rel=0.1)


def test_doctor_measures_two_nodes_by_a_job(
    built: BuiltImage, slurm: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(yaml.safe_dump({"clusters": {"own": {
        "mpi": "pmi2", "scratch": str(tmp_path / "scratch"),
    }}}))
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf"), "TRIMARAN_SITE": str(site)}
    done = tinyapp.call(["doctor", "collectives/cpu-2node-throughput", "--cluster", "own",
                         "--nodes", "2", "--measure", "--json"], env)
    assert done.returncode in (0, 4), done.stderr  # a busy host lets nodes differ
    # Both nodes are this host, so that the measurement has its name, and the facts n1 and n2.
    measured = [
        {finding["id"]: finding["cause"] for finding in node["findings"]}
        for node in json.loads(done.stdout)["nodes"]
        if any(finding["id"] == "qualification-gemm" for finding in node["findings"])
    ]
    assert len(measured) == 2, done.stderr
    for found in measured:
        assert "TFLOP/s" in found["qualification-gemm"]
        assert {"qualification-memory", "qualification-storage", "qualification-import",
                "qualification-pair", "qualification-all-reduce"} <= found.keys()
    assert "evidence, valid for 7 days" in done.stderr
    again = tinyapp.call(["doctor", "--cluster", "own", "--json"], env)
    [login] = json.loads(again.stdout)["nodes"]
    [aged] = [one for one in login["findings"] if one["id"] == "qualification-expired"]
    assert aged["level"] == ("warn" if "out of line" in aged["cause"] else "ok")
    assert "2 nodes were measured 0 days ago" in aged["cause"]
