"""A real Slurm cluster of two nodes: a small app is submitted, watched, stopped and resumed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import cluster
import tinyapp
from trimaran.cluster.script import SCRIPT
from trimaran.run import run_directory

pytestmark = [
    pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"), pytest.mark.timeout(280)
]

Trimaran = tinyapp.Trimaran
TWO = "hello/cpu-2core-2nodes-smoke"


@pytest.fixture
def trimaran(place: Path, engine_cache: Path, slurm: Path, tmp_path: Path) -> Trimaran:
    """Return a function that runs `trimaran` on a login node; the site file sets `mpi` for srun."""
    site = tmp_path / "site.yaml"
    site.write_text(yaml.safe_dump({"clusters": {"own": {"partition": "main", "mpi": "pmi2"}}}))
    tinyapp.write_recipe(
        place, name=TWO, launcher="srun", args={"sleep": 2},
        resources={"nodes": 2, "cpus_per_task": 1, "walltime": "00:05:00"},
    )
    env = tinyapp.environment(
        place, engine_cache, SLURM_CONF=str(slurm / "slurm.conf"), TRIMARAN_SITE=str(site)
    )
    return lambda *words, **more: tinyapp.call(list(words), {**env, **more})


def submit(trimaran: Trimaran, out: Path, *words: str) -> str:
    done = trimaran("submit", TWO, "--out", str(out), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}\n"
    assert re.findall(r"\[(\d/\d)\]", done.stderr) == ["1/3", "2/3", "3/3"]
    [job] = (out / "job/ids").read_text().split()
    return job


def standing(trimaran: Trimaran, out: Path) -> dict[str, Any]:
    done = trimaran("status", str(out), "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert isinstance(row, dict)
    return row


def wait(trimaran: Trimaran, out: Path, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the status of a run fulfils `until`, and return the status."""
    end = time.monotonic() + 200
    while not until(row := standing(trimaran, out)):
        assert time.monotonic() < end, row
        time.sleep(0.2)
    return row


def ended(row: dict[str, Any]) -> bool:
    return row["state"] not in ("pending", "configuring", "running", "completing")


def test_the_cluster_connects_ranks_on_both_nodes(slurm: Path) -> None:
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf")}
    for mpi, variable in (("pmix", "PMIX_RANK"), ("pmi2", "PMI_RANK")):
        done = subprocess.run(
            ["srun", "-N2", "-n2", f"--mpi={mpi}", "sh", "-c",
             f'echo "$SLURMD_NODENAME ${variable} of $SLURM_NTASKS"'],
            env=env, capture_output=True, text=True, check=False, timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["n1 0 of 2", "n2 1 of 2"]


def test_starting_it_again_and_stopping_it_twice_do_no_harm(tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("d")
    cluster.start(folder)
    before = cluster.pids(folder)
    cluster.start(folder)
    assert cluster.pids(folder) == before
    assert cluster.stop(folder)
    assert not cluster.stop(folder)
    assert cluster.pids(folder) == []


def test_a_run_on_two_nodes_is_watched_and_judged(trimaran: Trimaran, tmp_path: Path) -> None:
    out = tmp_path / "a run $(touch owned) 'of' \"mine\", ü"
    job = submit(trimaran, out)
    again = trimaran("submit", TWO, "--out", str(out))
    assert again.returncode == 2
    assert "[run-not-empty]" in again.stderr
    said = trimaran("logs", "-f", str(out))
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("mounted False") == 2
    row = wait(trimaran, out, ended)
    assert (row["state"], row["nodes"], row["links"], row["step"]) == ("completed", 2, 1, 2)
    judged = trimaran("report", str(out))
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "VERDICT PASS" in judged.stdout
    assert f"| 1 | {job} | 2 ({os.uname().nodename}) | 0 | 2 |" in (out / "report.md").read_text()
    assert [host.hostname for host in run_directory.load(out).hosts] == [os.uname().nodename] * 2
    assert trimaran("status", str(out)).returncode == 0
    assert not list(tmp_path.rglob("owned"))


def test_what_is_cancelled_says_so(trimaran: Trimaran, tmp_path: Path) -> None:
    out = tmp_path / "run"
    job = submit(trimaran, out, "--set", "sleep=100")
    wait(trimaran, out, lambda row: "mounted" in (out / "log.txt").read_text())
    busy = trimaran("resume", str(out))
    assert busy.returncode == 2
    assert "[job-active]" in busy.stderr
    assert f"job {job} " in busy.stderr
    done = trimaran("cancel", str(out))
    assert done.stdout == f"job {job} cancelled\n", done.stderr
    row = wait(trimaran, out, ended)
    assert row["state"] in ("cancelled", "interrupted", "failed"), row
    assert trimaran("report", str(out)).returncode == 2
    assert trimaran("cancel", str(out)).returncode == 2


def test_an_image_that_changed_after_submission_starts_no_rank(
    trimaran: Trimaran, tmp_path: Path, slurm: Path
) -> None:
    env = {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf")}
    hold = subprocess.run(["sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 100"],
                          env=env, capture_output=True, text=True, check=True, cwd=tmp_path)
    out = tmp_path / "run"
    submit(trimaran, out)
    image = Path(run_directory.load(out).image.reference)
    content = image.read_bytes()
    try:
        image.write_bytes(content + b"x")
        subprocess.run(["scancel", hold.stdout.strip()], env=env, check=True)
        row = wait(trimaran, out, ended)
    finally:
        image.write_bytes(content)
    assert row["state"] == "failed"
    assert "has changed since it was submitted" in row["why"], (out / "log.txt").read_text()
    resumed = trimaran("resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert wait(trimaran, out, ended)["state"] == "completed"


def test_what_slurm_refuses_is_told_in_its_words(trimaran: Trimaran, tmp_path: Path) -> None:
    site = tmp_path / "other.yaml"
    site.write_text(yaml.safe_dump({"clusters": {"own": {"partition": "nowhere"}}}))
    words = ("submit", TWO, "--out", str(tmp_path / "run"))
    done = trimaran(*words, TRIMARAN_SITE=str(site))
    assert done.returncode == 4
    assert "[node-unsuitable]" in done.stderr
    assert "'nowhere'" in done.stderr
    done = trimaran(*words, "--force", TRIMARAN_SITE=str(site))
    assert done.returncode == 4
    assert "[job-refused]" in done.stderr
    assert "invalid partition" in done.stderr
    unknown = trimaran("submit", TWO, "--cluster", "moon")
    assert unknown.returncode == 2
    assert "[name-unknown]" in unknown.stderr
    assert "'moon'" in unknown.stderr


def test_the_preview_is_what_is_queued(trimaran: Trimaran, tmp_path: Path) -> None:
    out = tmp_path / "run"
    preview = trimaran("submit", TWO, "--out", str(out), "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert not out.exists()
    submit(trimaran, out)
    assert (out / SCRIPT).read_text() == preview.stdout
    wait(trimaran, out, ended)
