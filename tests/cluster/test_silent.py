"""Batch systems that do not answer: a warning after a time-out, and all other work continues."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobplaces import Place, make, write_program
from trimaran import cli, site_file
from trimaran.cluster import detect_site, jobs, scheduler
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.site_file import Cluster

HANGS = "#!/bin/sh\nsleep 70\n"
ASKS = {"slurm": ("squeue", "scancel"), "pbs": ("qstat", "qdel"), "lsf": ("bjobs", "bkill")}
QUEUES = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(detect_site, "SECONDS", 0.5)


def ask(*words: object) -> Any:
    begun = time.monotonic()
    done = CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "300"})
    assert time.monotonic() - begun < 60
    assert done.exception is None or isinstance(done.exception, TrimaranError | SystemExit)
    return done


def hanging(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a run with a job in a batch system whose command does not answer."""
    place = make(root, cluster=Cluster.model_validate({"scheduler": name}))
    (place.out / "job/ids").write_text("7\n")
    write_program(place.root / "bin" / ASKS[name][0], HANGS)
    write_program(place.root / "bin" / ASKS[name][1], '#!/bin/sh\necho "$@" >"$0.argv"\n')
    write_program(place.root / "bin" / QUEUES[name], "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    return place


@pytest.mark.parametrize("name", ASKS)
def test_status_and_cancel_go_on_without_an_answer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hanging(tmp_path / "runs/p", name, monkeypatch)
    done = ask("status", place.out, "--json")
    [row] = json.loads(done.stdout)
    assert done.exit_code == 4
    assert (row["state"], row["job"]) == ("unknown", "7")
    assert row["why"] == f"{ASKS[name][0]} has not answered within 0.5 s"
    done = ask("cancel", place.out)
    assert done.exit_code == 0, done.output
    assert done.stdout == "job 7 cancelled\n"
    [warning] = [line for line in done.stderr.splitlines() if "warning:" in line]
    assert ASKS[name][0] in warning
    assert "0.5 s" in warning
    assert "job 7" in warning
    assert (place.root / "bin" / f"{ASKS[name][1]}.argv").read_text() == "7\n"
    error = ask("resume", place.out).exception
    assert isinstance(error, RunError)
    assert ASKS[name][0] in error.message


@pytest.mark.parametrize("name", ASKS)
def test_a_command_that_ends_jobs_may_hang_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hanging(tmp_path / "p", name, monkeypatch)
    write_program(place.root / "bin" / ASKS[name][1], HANGS)
    error = ask("cancel", place.out).exception
    assert isinstance(error, RunError)
    assert ASKS[name][1] in error.message
    assert "0.5 s" in error.message


def test_the_rows_of_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_place: Path
) -> None:
    pbs = hanging(own_place / "runs/b", "pbs", monkeypatch)
    slurm = make(own_place / "runs/a")
    (slurm.out / "job/ids").write_text("7\n")
    (slurm.root / "bin/queue").write_text("7|PENDING|Priority\n")
    ended = make(own_place / "runs/c", cluster=Cluster(scheduler="pbs"))
    code, said = ended.run()
    assert code == 0, said
    damaged = make(own_place / "runs/d", cluster=Cluster(scheduler="pbs"))
    (damaged.out / "job/link-0001.json").write_text("{")
    monkeypatch.setenv("PATH", f"{slurm.root / 'bin'}:{pbs.root / 'bin'}:/usr/bin:/bin")
    write_program(slurm.root / "bin/qstat", HANGS)
    done = ask("status", "--json")
    assert done.exit_code == 0, done.output
    states = {row["name"].split("/")[1]: row["state"] for row in json.loads(done.stdout)}
    assert states == {"a": "pending", "b": "unknown", "c": "completed", "d": "unknown"}


@pytest.mark.parametrize(
    "what", ["no program", "not executable", "prints for ever", "a grandchild"]
)
def test_commands_that_are_none(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hanging(tmp_path / "p", "slurm", monkeypatch)
    squeue = place.root / "bin/squeue"
    if what == "no program":
        squeue.write_bytes(b"\0\1\2")
    elif what == "not executable":
        squeue.unlink()
        squeue.mkdir()
    elif what == "prints for ever":
        squeue.write_text("#!/bin/sh\nwhile :; do echo x; sleep 0.01; done\n")
    else:
        squeue.write_text("#!/bin/sh\nsleep 70 &\nexit 0\n")  # it keeps the pipe open
    done = ask("status", place.out, "--json")
    [row] = json.loads(done.stdout)
    assert row["state"] == "unknown", row
    assert jobs.numbers(place.out) == ["7"]


@pytest.mark.parametrize("hangs", [
    ("sacctmgr",), ("scontrol",), ("srun",), ("sacctmgr", "scontrol", "srun"),
])
def test_a_site_file_is_made_of_what_is_told(
    hangs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    said = {"sbatch": "", "squeue": "", "scancel": "", "sinfo": "echo 'main*'",
            "sacctmgr": "echo project-1", "srun": "echo pmix", "scontrol": "echo MaxTime=1:00:00"}
    for name, text in said.items():
        write_program(programs / name, HANGS if name in hangs else f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    site = tmp_path / "site.yaml"
    done = ask("site", "init", "--yes", "--site", site)
    assert done.exit_code == 0, done.output
    warnings = {line for line in done.stderr.splitlines() if "warning:" in line}
    assert len(warnings) == len(hangs)  # scontrol is asked twice
    for name in hangs:
        [warning] = [line for line in warnings if name in line.split()]
        assert "0.5 s" in warning
    cluster = site_file.load(site).clusters["here"]
    assert (cluster.partition, cluster.mpi) == ("main", "pmix")
    assert cluster.account == (None if "sacctmgr" in hangs else "project-1")


def test_a_batch_system_that_answers_nothing_gives_no_site_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sbatch", "squeue", "scancel", "srun", "sinfo"):
        write_program(tmp_path / name, HANGS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = ask("site", "init", "--yes", "--site", tmp_path / "site.yaml")
    assert isinstance(done.exception, RunError)
    assert "sinfo" in done.exception.message
    assert "0.5 s" in done.exception.message
    assert not (tmp_path / "site.yaml").exists()


@pytest.mark.parametrize("nodes", [
    "9" * 40, "9" * 5000, "1," + "9" * 7, "100001", "0", "00000001", "1e3", "٣", "²", "1_0", "-1",
])
def test_absurd_numbers_of_nodes_are_refused(nodes: str) -> None:
    done = ask("submit", "resnet-imagenet/cpu-2node-smoke", "--dry-run", f"--nodes={nodes}")
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "argument-invalid"
    assert f"--nodes {nodes}" in done.exception.message
