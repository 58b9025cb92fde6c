"""Test `trimaran status`, `logs` and `cancel` on a scaling series, with a fake Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from finished import start
from jobplaces import write_program
from trimaran import cli
from trimaran.errors import UsageError
from trimaran.recipes.library import RecipeFile
from trimaran.report import scaling
from trimaran.run import run_directory
from trimaran.run.record import JobRecord


@pytest.fixture
def series(recipe: RecipeFile, own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a series of four runs: ended, running, waiting, and never submitted."""
    folder = own_place / "series"
    places = scaling.begin(folder, "app/recipe", [1, 2, 4, 8])
    for nodes in (1, 2, 4):
        record = start(places[nodes], recipe)
        job = JobRecord(scheduler="slurm", cluster="ours", script_sha256="ab" * 32)
        queued = record.model_copy(update={"job": job, "status": "queued"})
        run_directory._write(places[nodes], queued)
        (places[nodes] / "job").mkdir()
        (places[nodes] / "job/ids").write_text(f"{nodes}\n")
        (places[nodes] / "log.txt").touch()
    programs = own_place / "bin"
    programs.mkdir()
    write_program(
        programs / "squeue", "#!/bin/sh\nprintf '2|RUNNING|None\\n4|PENDING|Priority\\n'\n"
    )
    write_program(programs / "scancel", '#!/bin/sh\necho "$1" >>"$0.argv"\n')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return folder


def ask(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "200"})


def test_status_lists_its_runs_and_says_which_was_not_submitted(series: Path) -> None:
    done = ask("status", series)
    assert done.exit_code == 0, done.output
    for nodes, state in ((1, "lost"), (2, "running"), (4, "pending")):
        [line] = [row for row in done.stdout.splitlines() if f"nodes-000{nodes}" in row]
        assert state in line
    assert "nodes-0008" in done.stderr


def test_cancel_ends_all_that_have_not_ended(series: Path) -> None:
    done = ask("cancel", series)
    assert done.stdout == "job 2 cancelled\njob 4 cancelled\n"
    assert (series.parent / "bin/scancel.argv").read_text() == "2\n4\n"
    write_program(series.parent / "bin/squeue", "#!/bin/sh\n")
    again = ask("cancel", series)
    assert isinstance(again.exception, UsageError)
    assert again.exception.code == "job-not-found"
    assert str(series / "nodes-0004") in again.exception.message


def test_logs_says_which_to_choose(series: Path) -> None:
    done = ask("logs", series)
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "argument-invalid"
    assert str(series) in done.exception.message
    assert str(series / "nodes-0002") in str(done.exception.hint)
