"""Paths of run directories with patterns that a batch system replaces, or invisible characters."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hostile import is_harmless
from jobplaces import ENGINE, make, write_program
from trimaran import cli
from trimaran.errors import UsageError
from trimaran.launch.specification import quote

TWO_NODES = "resnet-imagenet/cpu-2node-smoke"
MARKS = ["\u202e", "\u200f", "\u2066", "\u061c", "\u2028", "\ufeff", "\u00ad", "\U000e0001"]
"""Characters that reverse the direction of text, break a line, or are invisible."""


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an Apptainer stand-in on PATH, so that no command fails for the lack of it."""
    write_program(tmp_path / "apptainer", ENGINE)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def ask(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "200"})


def site_of(place: Path, scheduler: str) -> Path:
    file = place / "site.yaml"
    file.write_text(f"clusters: {{own: {{scheduler: {scheduler}}}}}\n")
    return file


@pytest.mark.parametrize(
    ("scheduler", "name", "read"),
    [
        *(("slurm", name, "%") for name in ("a%jb", "%", "50%", "a%%b", "%5j", "%x/run")),
        *(("slurm", name, "\\") for name in ("a\\b", "\\", "a\\\\b", "\\/run")),
        *(("lsf", name, "%") for name in ("%J", "a%Ib", "%")),
        ("pbs", "a^array_index^", "^array_index^"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--dry-run"], ["--nodes=1,2"]], ids=" ".join)
def test_what_a_batch_system_would_replace_is_refused_by_name(
    scheduler: str, name: str, read: str, words: list[str], own_place: Path
) -> None:
    site = site_of(own_place, scheduler)
    done = ask("submit", TWO_NODES, "--site", site, "--out", name, *words)
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "scheduler-unsupported"
    assert f" {read} " in done.exception.message
    assert "--out" in str(done.exception.hint)
    assert [path.name for path in own_place.iterdir()] == ["site.yaml"]


def test_the_folder_that_it_is_called_in_counts_too(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_place / "100%").mkdir()
    monkeypatch.chdir(own_place / "100%")
    error = ask("submit", TWO_NODES, "--dry-run").exception
    assert isinstance(error, UsageError)
    assert error.code == "scheduler-unsupported"
    assert str(own_place / "100%") in error.message


@pytest.mark.parametrize(("scheduler", "name"), [
    ("pbs", "a%b\\c"), ("lsf", "a\\b^array_index^"), ("slurm", "a^array_index^,=:; b"),
])
def test_what_it_does_not_replace_is_taken(scheduler: str, name: str, own_place: Path) -> None:
    site = site_of(own_place, scheduler)
    done = ask("submit", TWO_NODES, "--site", site, "--out", name, "--dry-run")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("mark", MARKS)
def test_what_is_not_seen_is_written_out_in_a_script(mark: str) -> None:
    text = f"/a {mark}'b$(touch owned)"
    source = quote(text)
    assert is_harmless(source)
    done = subprocess.run(["sh", "-c", f"printf %s {source}"], capture_output=True, check=True)
    assert done.stdout.decode() == text


@pytest.mark.parametrize("mark", MARKS[:3])
def test_a_direction_mark_in_a_path_is_seen_and_the_script_that_is_shown_is_the_real_one(
    mark: str, own_place: Path
) -> None:
    done = ask("submit", TWO_NODES, "--out", f"a{mark}b", "--dry-run")
    assert done.exit_code == 0, done.output
    assert is_harmless(done.stdout)
    assert "\\u" not in done.stdout  # an escape would name another folder
    [line] = [one for one in done.stdout.splitlines() if one.startswith("out=")]
    told = f'{line}; printf %s "$out"'
    found = subprocess.run(["sh", "-c", told], capture_output=True, check=True)
    assert found.stdout.decode() == str(own_place / f"a{mark}b")


def test_a_job_in_such_a_folder_runs_and_its_log_shows_the_mark_written_out(
    tmp_path: Path,
) -> None:
    place = make(tmp_path / "a\u202eb", "r\u2066n")
    assert is_harmless((place.out / "job/job.sh").read_text())
    code, said = place.run()
    assert code == 0, said
    log = (place.out / "log.txt").read_text()
    assert is_harmless(log), ascii(log)
    [line] = [one for one in log.splitlines() if one.startswith("job.sh: job 7, link 1: ")]
    words = line.partition("link 1: ")[2]
    shown = subprocess.run(["sh", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True)
    assert shown.stdout.decode().split("\0")[-3:-1] != []
