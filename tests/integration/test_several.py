"""A real Slurm of two nodes: jobs of several trainings, and runs that continue others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import cluster
import tinyapp
from sharedjobs import share
from trimaran import paths
from trimaran.cluster import watch
from trimaran.files import sha256
from trimaran.run import job_chain, run_directory
from trimaran.site_file import Cluster

pytestmark = [pytest.mark.engine("slurm"), pytest.mark.timeout(280)]

ONE, FIRST, SECOND = (f"hello/cpu-2node-{name}-smoke" for name in ("one", "first", "second"))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a cluster whose configuration has four cores per node, and return its folder."""
    folder = tmp_path_factory.mktemp("c")
    cluster.start(folder, cores=4)
    try:
        yield folder
    finally:
        cluster.stop(folder)


@pytest.fixture
def trimaran(place: Path, engine_cache: Path, slurm: Path, tmp_path: Path) -> tinyapp.Trimaran:
    """Return a function that runs `trimaran`; its jobs copy image and data to the node's disk."""
    shutil.copy(paths.repository() / "recipes/targets/cpu-2node.yaml", place / "recipes/targets")
    site = tmp_path / "site.yaml"
    own = {"partition": "main", "local_storage": str(tmp_path / "disk"), "stage_data": True}
    site.write_text(yaml.safe_dump({"clusters": {"own": own}}))
    one = {"nodes": 1, "cpus_per_task": 1, "walltime": "00:05:00"}
    more: dict[str, dict[str, Any]] = {
        ONE: {"args": {"sleep": 1}}, FIRST: {"args": {"max-steps": 2}},
        SECOND: {"args": {}, "initial": {"recipe": FIRST, "step": 2}},
    }
    for name, keys in more.items():
        tinyapp.write_recipe(place, name=name, target="cpu-2node", resources=one, **keys)
    env = tinyapp.environment(
        place, engine_cache, SLURM_CONF=str(slurm / "slurm.conf"), TRIMARAN_SITE=str(site)
    )
    return lambda *words, **other: tinyapp.call(list(words), {**env, **other})


def standing(trimaran: tinyapp.Trimaran, folder: Path) -> list[dict[str, Any]]:
    done = trimaran("status", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert isinstance(rows, list)
    return rows


def ended(trimaran: tinyapp.Trimaran, folder: Path) -> list[str]:
    """Wait until all runs have ended, and return their states."""
    end = time.monotonic() + 400
    while not set(states := [row["state"] for row in standing(trimaran, folder)]) <= {*watch.ENDED}:
        assert time.monotonic() < end, states
        time.sleep(0.5)
    return states


@pytest.mark.engine("apptainer")
def test_four_trainings_have_four_verdicts_and_one_copy_of_the_data(
    trimaran: tinyapp.Trimaran, tmp_path: Path
) -> None:
    folder = tmp_path / "four $(touch owned)"
    done = trimaran("submit", ONE, "--together", "--seeds", "1,2,3,4", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder}\n"
    assert ended(trimaran, folder) == ["completed"] * 4
    runs = [folder / f"{seed}-cpu-2node-one-smoke-seed{seed}" for seed in range(1, 5)]
    assert {job for run in runs for job in job_chain.numbers(run)} == set(
        job_chain.numbers(folder))
    for run in runs:
        judged = trimaran("report", str(run))
        assert "VERDICT PASS" in judged.stdout, judged.stdout + judged.stderr
    logs = [(run / "log.txt").read_text() for run in runs]
    copies = [line for log in logs for line in log.splitlines() if ": copied " in line]
    assert len(copies) == 2, "the image and the data set, each once"
    assert not list((tmp_path / "disk").iterdir())
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.engine("apptainer")
def test_a_chain_of_two_starts_from_the_checkpoint_of_the_first(
    trimaran: tinyapp.Trimaran, tmp_path: Path
) -> None:
    folder = tmp_path / "chain"
    done = trimaran("submit", FIRST, SECOND, "--chain", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    first, second = folder / "1-cpu-2node-first-smoke", folder / "2-cpu-2node-second-smoke"
    assert ended(trimaran, folder) == ["completed"] * 2
    assert "begins with weights" in (second / "log.txt").read_text()
    initial = run_directory.load(second).initial
    assert initial is not None
    assert initial.sha256 == sha256(first / "checkpoints/step-00000002.npz")
    judged = trimaran("report", str(second))
    assert "VERDICT PASS" in judged.stdout, judged.stdout + judged.stderr


STOPPED = """
case $PWD in */1-*) exit 0 ;; esac
if [ -e checkpoints ]; then exit 0; fi
trap 'mkdir -p checkpoints; touch checkpoints/step-00000012.npz; exit 75' URG
touch up
while :; do sleep 0.2; done
"""
"""Fake app: the first training completes; the second writes a checkpoint at Slurm's signal."""


def test_the_job_begins_again_for_what_the_time_limit_has_stopped(
    slurm: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf")}
    place, runs = share(tmp_path / "p", 2, Cluster(), job=None)
    for name in ("srun", "squeue", "scancel", "scontrol"):
        (place.root / "bin" / name).unlink()
    (place.root / "bin/act").write_text(STOPPED)
    words = ["sbatch", "--parsable", f"--chdir={place.out}", "job/job.sh"]
    job = subprocess.run(words, env=env, cwd=place.out, capture_output=True, text=True,
                         check=True).stdout.strip()
    wait(lambda: (runs[1] / "up").exists() and ends(runs[0]) == [0])
    subprocess.run(["scancel", "-b", "--signal=USR1", job], env=env, check=True)
    wait(lambda: ends(runs[1]) == [75, 0])
    assert ends(runs[0]) == [0], "what has completed is not started again"
    assert [job_chain.numbers(run) for run in runs] == [[job], [job]]


def ends(run: Path) -> list[int]:
    """Return the exit status of each ended job of a run, in order."""
    return [link.end.exit_status for link in job_chain.read(run) if link.end]


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 400
    while not until():
        assert time.monotonic() < end
        time.sleep(0.3)
