"""Test the checks of limits, places and network on a real Slurm of two nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

import tinyapp
from hosts import caused
from situations import by_id
from trimaran.doctor.findings import Finding

pytestmark = [pytest.mark.engine("slurm"), pytest.mark.timeout(200)]

RECIPE = "resnet-imagenet/cpu-2node-smoke"


def doctor(slurm: Path, folder: Path, *words: str, **cluster: object) -> list[list[Finding]]:
    """Run `trimaran doctor`; return the findings of each node, beginning with the login node."""
    (folder / "site.yaml").write_text(yaml.safe_dump({"clusters": {"own": cluster}}))
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf"),
           "TRIMARAN_SITE": str(folder / "site.yaml")}
    done = tinyapp.call(["doctor", RECIPE, "--cluster", "own", *words, "--json"], env)
    return [[Finding.model_validate(one) for one in node["findings"]]
            for node in json.loads(done.stdout)["nodes"]]


def test_the_partitions_that_scontrol_prints(slurm: Path, tmp_path: Path) -> None:
    [login] = doctor(slurm, tmp_path, partition="nowhere")
    assert "'nowhere' (known: main" in caused("partition", login, "fail").cause
    [login] = doctor(slurm, tmp_path)  # the default partition
    assert by_id(login)["partition"].cause == "main: open"


def test_two_nodes(slurm: Path, tmp_path: Path) -> None:
    nodes = doctor(slurm, tmp_path, "--nodes", "2", scratch=str(tmp_path),
                   env={"GLOO_SOCKET_IFNAME": "ib77"})
    assert len(nodes) == 3
    assert "interface-names" not in by_id(nodes[0])  # the login node has other interfaces
    for node in nodes[1:]:
        assert "no ib77" in caused("interface-names", node, "fail").cause
        assert caused("fast-network", node, "warn")
        found = by_id(node)
        assert {found[name].level for name in ("clock", "place-missing", "cpu-mask")} == {"ok"}
