"""Tests that `trimaran status` shows all active runs, and of many ended runs the last ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from finished import start
from trimaran import cli
from trimaran.cli.cluster import LAST
from trimaran.recipes.library import RecipeFile
from trimaran.run import job_chain, run_directory
from trimaran.run.record import JobRecord


@pytest.fixture
def runs(recipe: RecipeFile, own_place: Path) -> Path:
    """Create more ended runs than `status` shows; the run 000 was submitted first."""
    folder = own_place / "runs"
    first = folder / "000"
    record = start(first, recipe)
    job = JobRecord(scheduler="slurm", cluster="ours", script_sha256="ab" * 32)
    run_directory._write(first, record.model_copy(update={"job": job, "status": "queued"}))
    inside = first / job_chain.FOLDER
    inside.mkdir()
    (inside / "job.sh").touch()
    (inside / "link-0001.json").write_text(json.dumps({
        "number": 1, "job": "7", "started": "2026-01-01T00:00:00Z", "step": 0,
        "hosts": [record.host.model_dump(mode="json")],
    }))
    (inside / "link-0001.end.json").write_text(json.dumps({
        "ended": "2026-01-01T01:00:00Z", "exit_status": 0, "step": 9, "reason": "", "files": {},
    }))
    for number in range(1, LAST + 10):
        copy = shutil.copytree(first, folder / f"{number:03}")
        os.utime(copy / job_chain.FOLDER / "job.sh", (2_000_000_000 + number,) * 2)
    return folder


def ask(*words: str) -> tuple[str, str]:
    done = CliRunner().invoke(cli.app, ["status", *words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.mark.usefixtures("runs")
def test_of_those_that_have_ended_the_last_are_shown_and_the_rest_counted() -> None:
    said, note = ask()
    assert "runs/009" not in said
    assert "runs/010" in said
    assert "runs/059" in said
    assert "10 more " in note
    assert "trimaran status --json" in note


def test_json_has_all_and_what_is_named_is_shown(runs: Path) -> None:
    assert len(json.loads(ask("--json")[0])) == LAST + 10
    said, note = ask(*(str(path) for path in sorted(runs.iterdir())))
    assert "runs/000" in said
    assert not note


def test_runs_on_the_scratch_of_a_cluster_are_found_too(
    runs: Path, tmp_path: Path, own_place: Path
) -> None:
    scratch = tmp_path / "scratch/of the project"
    (scratch / "runs/a").mkdir(parents=True)
    (runs / "059").rename(scratch / "runs/a/far")
    site = tmp_path / "site.yaml"
    site.write_text(json.dumps({"clusters": {
        "ours": {"scratch": str(scratch)}, "twice": {"scratch": str(scratch)},
        "here": {"scratch": str(own_place)}, "none": {},
    }}))
    names = [row["name"] for row in json.loads(ask("--json", "--site", str(site))[0])]
    assert names[-1] == str(scratch / "runs/a/far")
    assert names[-2] == "runs/058"
    assert len(names) == LAST + 10
