"""Test the handling of copies of images and data that jobs left on the local disk of a node.

`cache list` shows these copies; `cache prune` and `cancel` remove them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from finished import chain
from jobplaces import write_program
from trimaran import cli
from trimaran.cluster import node_copies
from trimaran.errors import UsageError
from trimaran.site_file import Cluster, Site


@pytest.fixture
def disk(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a node's local disk that contains an image copy of each of the jobs 40 to 43.

    According to a stand-in for Slurm, job 41 runs, and job 43 has failed; jobs 40 and 42 are not
    listed.
    """
    disk = own_place / "own disk"
    for job in range(40, 44):
        folder = disk / f"trimaran-{job}-n1"
        folder.mkdir(parents=True)
        (folder / ".job").write_text(f"{job}\n")
        (folder / "image.sif").write_bytes(b"s" * 1000)
    (disk / "trimaran-44-n1").mkdir()  # a job has just created it
    (disk / "trimaran-45-n1").symlink_to(disk / "trimaran-40-n1")
    programs = own_place / "bin"
    programs.mkdir()
    write_program(programs / "squeue", "#!/bin/sh\nprintf '41|RUNNING|None\\n43|FAILED|None\\n'\n")
    write_program(programs / "scancel", '#!/bin/sh\necho "$1" >>"$0.argv"\n')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (own_place / "site.yaml").write_text(
        yaml.safe_dump({"clusters": {"own": {"local_storage": str(disk)}}})
    )
    monkeypatch.setenv("TRIMARAN_SITE", str(own_place / "site.yaml"))
    return disk


def ask(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "200"})


def left(disk: Path) -> list[str]:
    return sorted(path.name for path in disk.iterdir()
                  if not path.is_symlink() and (path / "image.sif").exists())


def test_the_cache_lists_and_removes_what_ended_jobs_have_left(disk: Path) -> None:
    done = ask("cache", "list", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout) if row["kind"] == "copies"}
    assert {Path(name).name: row["state"] for name, row in rows.items()} == {
        "trimaran-40-n1": "left over", "trimaran-41-n1": "running",
        "trimaran-42-n1": "left over", "trimaran-43-n1": "left over",
    }
    assert rows[str(disk / "trimaran-40-n1")]["size"] == 1003
    done = ask("cache", "prune", "--yes")
    assert done.exit_code == 0, done.output
    [note] = [line for line in done.stderr.splitlines() if "trimaran-41-n1" in line]
    assert "job 41 " in note
    assert left(disk) == ["trimaran-41-n1"]
    assert (disk / "trimaran-44-n1").is_dir()


def test_where_the_batch_system_does_not_answer_all_stays(disk: Path) -> None:
    before = left(disk)
    write_program(disk.parent / "bin/squeue", "#!/bin/sh\nexit 1\n")
    done = ask("cache", "prune", "--yes")
    assert done.exit_code == 0, done.output
    assert any("trimaran-40-n1" in line and "job 40 " in line for line in done.stderr.splitlines())
    assert left(disk) == before


@pytest.mark.usefixtures("disk")
def test_a_disk_of_two_batch_systems_is_cleaned_only_where_both_answer(disk: Path) -> None:
    site = Site(clusters={"a": Cluster(local_storage=disk),
                          "b": Cluster(scheduler="lsf", local_storage=disk)})
    assert {one.ended for one in node_copies.find(site)} == {None}  # bjobs is not on PATH


def test_cancel_removes_what_killed_jobs_of_the_run_have_left(disk: Path, checkout: Path) -> None:
    run = disk.parent / "run"
    chain(run, checkout)
    (run / "job/ids").write_text("42\n43\n")
    done = ask("cancel", run)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        f"removed {disk}/trimaran-{job}-n1, left by job {job}" for job in (42, 43)
    ]
    assert left(disk) == ["trimaran-40-n1", "trimaran-41-n1"]
    again = ask("cancel", run)
    assert isinstance(again.exception, UsageError)


def test_cancel_leaves_what_the_job_itself_removes(disk: Path, checkout: Path) -> None:
    run = disk.parent / "run"
    chain(run, checkout)
    (run / "job/ids").write_text("41\n")
    assert ask("cancel", run).stdout == "job 41 cancelled\n"
    assert "trimaran-41-n1" in left(disk)
