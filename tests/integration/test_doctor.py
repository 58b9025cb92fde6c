"""`trimaran doctor --nodes` on a real Slurm of two nodes; in one test, a node hangs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

import tinyapp
from hosts import caused
from trimaran import architectures, site_file
from trimaran.doctor import nodes
from trimaran.doctor.findings import Finding
from trimaran.reporting import Silent
from trimaran.site_file import Cluster

pytestmark = [pytest.mark.engine("slurm"), pytest.mark.timeout(200)]

RECIPE = "resnet-imagenet/cpu-2node-smoke"


def doctor(slurm: Path, site: Path, *words: str, **cluster: str) -> CompletedProcess[str]:
    """Run `trimaran doctor --json` on the login node of the cluster."""
    site.write_text(yaml.safe_dump({"clusters": {"own": cluster}}))
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf"), "TRIMARAN_SITE": str(site)}
    return tinyapp.call(["doctor", *words, "--json"], env)


def test_two_nodes_are_examined_and_the_srun_of_each(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "a folder $(touch owned) 'x'"
    work.mkdir()
    monkeypatch.chdir(work)
    words = (RECIPE, "--cluster", "own", "--nodes", "2")
    done = doctor(slurm, tmp_path / "site.yaml", *words, partition="main", mpi="pmix_v9")
    assert done.returncode == 4, done.stderr
    assert list(work.iterdir()) == []
    found = json.loads(done.stdout)
    assert [(one["node"], one["role"]) for one in found["nodes"]][1:] == [
        ("n1", "compute"), ("n2", "compute")
    ]
    for node in found["nodes"]:
        findings = [Finding.model_validate(one) for one in node["findings"]]
        assert "pmix_v9" in caused("pmi-flavour", findings, "fail").cause
        assert "cores" in {one.id for one in findings}


def test_the_architecture_of_the_nodes_is_compared(slurm: Path, tmp_path: Path) -> None:
    own = architectures.native()
    other = next(one for one in architectures.ARCHITECTURES if one != own)
    words = (RECIPE, "--cluster", "own", "--nodes", "2")
    for wanted, level in ((own, "ok"), (other, "fail")):
        done = doctor(slurm, tmp_path / "site.yaml", *words, partition="main", architecture=wanted)
        found = [
            one["level"] for node in json.loads(done.stdout)["nodes"] for one in node["findings"]
            if one["id"] == "node-architecture"
        ]
        assert found == [level] * 3  # of Slurm on the login node, and of each node


def test_a_first_site_file_has_the_architecture_of_the_nodes(slurm: Path, tmp_path: Path) -> None:
    site = tmp_path / "new/site.yaml"
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf")}
    done = tinyapp.call(["site", "init", "--yes", "--site", str(site)], env)
    assert done.returncode == 0, done.stderr
    assert site_file.load(site).clusters["here"].architecture == architectures.native()


def test_a_partition_that_is_not_there_is_told(slurm: Path, tmp_path: Path) -> None:
    done = doctor(slurm, tmp_path / "site.yaml", "--nodes", "2", partition="nowhere")
    assert done.returncode == 4
    assert "[job-refused]" in done.stderr


def test_a_node_that_hangs_is_a_finding_and_no_hang(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm / "slurm.conf"))
    second = int((slurm / "slurmd-n2.pid").read_text())
    os.kill(second, signal.SIGSTOP)
    begun = time.monotonic()
    try:
        answers, silent = nodes.collect(
            Cluster(partition="main", scratch=tmp_path), 2, {}, None, Silent(), 60, 5
        )
    finally:
        os.kill(second, signal.SIGCONT)
    assert time.monotonic() - begun < 100
    assert [one.node for one in answers] in (["n1"], [])  # srun may wait for both
    assert "n2" in silent
    assert "n2" in caused("node-silent", [nodes.silent("n2")], "fail").cause
