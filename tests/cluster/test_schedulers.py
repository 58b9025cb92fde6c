"""Batch systems: the options of a job, the arguments of their commands, and their answers.

tests/integration/test_cluster.py uses a real Slurm. Here, PBS and LSF are stand-ins: commands
with these names that record their arguments, and print the answers in the manuals.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from refusals import refused
from trimaran.cluster.lsf import Lsf
from trimaran.cluster.pbs import Pbs
from trimaran.cluster.scheduler import Scheduler, Shape, State
from trimaran.cluster.script import SCHEDULERS
from trimaran.cluster.slurm import Slurm
from trimaran.errors import RunError, UsageError
from trimaran.launch.specification import plain
from trimaran.site_file import Cluster

NODES_448 = Shape(448, 2, 24, 0, "02:00:00", sockets=2, ranks_told=True)
SUMMIT = Shape(256, 6, 7, 6, "00:59:30", ranks_told=True)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **said: str) -> Path:
    """Put commands on PATH that print the texts in `said`, and record arguments and stdin."""
    for name, text in said.items():
        (folder / f"{name}.said").write_text(text)
        program = folder / name
        program.write_text(
            '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.argv"\ncat >"$0.stdin"\ncat "$0.said"\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_the_published_run_on_448_nodes_has_a_rank_on_each_socket() -> None:
    words = Slurm().ranks(NODES_448, Cluster(), "448", "896")
    assert "--ntasks=896" in words
    assert "--ntasks-per-socket=1" in words
    assert "--cpu-bind=cores" in words
    assert "--cpus-per-task=24" in words


def test_a_single_task_of_a_node_is_not_bound() -> None:
    words = Slurm().ranks(Shape(2, 1, 4, 0, "1:00:00"), Cluster(), "2", "2")
    assert not [word for word in words if plain(word).startswith("--cpu-bind")]


def test_jsrun_gives_each_task_a_resource_set_of_its_own() -> None:
    words = Lsf().ranks(SUMMIT, Cluster(), "256", "1536")
    assert words[:5] == ("jsrun", "--nrs", "1536", "--rs_per_host", "6")
    assert words[words.index("--gpu_per_rs") + 1] == "1"


@pytest.mark.parametrize(("walltime", "asked"), [("00:59:30", "00:60"), ("02:10:00", "02:10")])
def test_lsf_has_no_seconds(walltime: str, asked: str) -> None:
    shape = Shape(1, 1, 1, 0, walltime)
    assert f"-W {asked}" in Lsf().options("a/b", shape, Cluster(scheduler="lsf"), elastic=False)


@pytest.mark.parametrize("name", ["a/b", "resnet-imagenet/gtx1080ti-x4-scaling@16"])
def test_the_name_of_a_job_of_pbs_has_only_what_qsub_takes(name: str) -> None:
    said = Pbs().options(name, NODES_448, Cluster(scheduler="pbs"), elastic=False)
    assert re.fullmatch(r"-N [A-Za-z][A-Za-z0-9_-]+", said[0])


@pytest.mark.parametrize("scheduler", [Pbs(), Lsf()], ids=["pbs", "lsf"])
def test_only_a_job_of_slurm_is_elastic(scheduler: Scheduler) -> None:
    with refused("scheduler-unsupported", "min_nodes", kind=UsageError):
        scheduler.options("a/b", NODES_448, Cluster(), elastic=True)


def test_pbs_has_no_quality_of_service() -> None:
    with refused("scheduler-unsupported", "qos", kind=UsageError):
        Pbs().options("a/b", NODES_448, Cluster(qos="high"), elastic=False)


def test_pbs_is_asked_for_whole_chunks() -> None:
    shape = Shape(2, 4, 8, 4, "1:00:00", ranks_told=True)
    said = Pbs().options("a/b", shape, Cluster(constraint="model=mil"), elastic=False)
    assert "-l select=2:ncpus=32:mpiprocs=4:ngpus=4:model=mil" in said


def test_qsub_queues_the_script_and_names_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stand_in(tmp_path, monkeypatch, qsub="123.server\n")
    assert Pbs().submit(Path("job/job.sh"), tmp_path) == "123.server"
    assert (place / "qsub.argv").read_text() == "job/job.sh\n"


def test_bsub_reads_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = stand_in(tmp_path, monkeypatch, bsub="Job <77> is submitted to queue <batch>.\n")
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    assert Lsf().submit(Path("job.sh"), tmp_path) == "77"
    assert (place / "bsub.stdin").read_text() == "#!/bin/sh\n"
    (place / "bsub.said").write_text("what?\n")
    with refused("job-number-missing", "bsub", "what?", kind=RunError):
        Lsf().submit(Path("job.sh"), tmp_path)


@pytest.mark.parametrize(
    ("scheduler", "command"), [(Slurm(), "scancel"), (Pbs(), "qdel"), (Lsf(), "bkill")],
    ids=["slurm", "pbs", "lsf"],
)
def test_a_job_is_ended_by_its_number(
    scheduler: Scheduler, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stand_in(tmp_path, monkeypatch, **{command: ""})
    scheduler.cancel("123.server")
    assert (place / f"{command}.argv").read_text() == "123.server\n"


QSTAT = {"Jobs": {
    "1.s": {"job_state": "R"}, "2.s": {"job_state": "Q", "comment": "Not Running: no nodes"},
    "3.s": {"job_state": "F", "Exit_status": 0}, "4.s": {"job_state": "F", "Exit_status": 271},
}}
BJOBS = {"COMMAND": "bjobs", "JOBS": 4, "RECORDS": [
    {"JOBID": "1", "STAT": "RUN", "PEND_REASON": "", "EXIT_REASON": ""},
    {"JOBID": "2", "STAT": "PEND", "PEND_REASON": "New job", "EXIT_REASON": ""},
    {"JOBID": "3", "STAT": "DONE"}, {"JOBID": "4", "STAT": "EXIT", "EXIT_REASON": "TERM_RUNLIMIT"},
    {"JOBID": "5", "ERROR": "Job <5> is not found"},
]}


@pytest.mark.parametrize(
    ("scheduler", "command", "said", "ending"),
    [(Pbs(), "qstat", QSTAT, ".s"), (Lsf(), "bjobs", BJOBS, "")], ids=["pbs", "lsf"],
)
def test_states_are_told_in_the_same_words(
    scheduler: Scheduler, command: str, said: Any, ending: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = stand_in(tmp_path, monkeypatch, **{command: json.dumps(said)})
    found = scheduler.states([f"{number}{ending}" for number in (1, 2, 3, 4, 5)])
    assert {number.removesuffix(ending): (state.name, state.active)
            for number, state in found.items()} == {
        "1": ("RUNNING", True), "2": ("PENDING", True), "3": ("COMPLETED", False),
        "4": ("FAILED", False),
    }
    assert found[f"2{ending}"].reason in ("Not Running: no nodes", "New job")
    (place / f"{command}.said").write_text("cannot connect to server\n")
    with refused("scheduler-failed", command, "cannot connect to server", kind=RunError):
        scheduler.states(["1"])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_missing_commands_are_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    scheduler = SCHEDULERS[name]
    with refused("scheduler-missing", scheduler.programs[0], scheduler.title, kind=UsageError):
        scheduler.check()


def test_slurms_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, squeue="7|RUNNING|None\n8|TIMEOUT|TimeLimit\nrubbish\n")
    found = Slurm().states(["7"])
    assert found == {
        "7": State("RUNNING", "None"), "8": State("TIMEOUT", "TimeLimit", active=False)
    }
