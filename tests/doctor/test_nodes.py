"""The job of `doctor --nodes`, with stand-ins for PBS and LSF; tests/integration has a real Slurm.

A stand-in queues a job by starting its script, and starts a task on each of two made-up nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hosts
from hosts import caused
from refusals import refused
from trimaran.cluster.script import SCHEDULERS
from trimaran.doctor import examination, nodes
from trimaran.doctor.examination import Examination, NodeFindings
from trimaran.doctor.findings import Finding
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.site_file import Cluster

START = """
while [ "$1" != /bin/sh ]; do shift; done
for node in $NODES; do SLURMD_NODENAME=$node "$@"; done
"""

SHELLCHECK = str(Path(sys.executable).with_name("shellcheck"))


def stand_in(place: Path, monkeypatch: pytest.MonkeyPatch, answering: str = "a b") -> None:
    """Put stand-ins for PBS and LSF on PATH, whose jobs run on the nodes a and b."""
    (place / "nodefile").write_text("a\na\nb\n")
    running = json.dumps({"Jobs": {"7.server": {"job_state": "R"}}})
    programs = {
        "qsub": "echo 7.server\nexec >/dev/null 2>&1\n"
                f"PBS_NODEFILE={place}/nodefile setsid /bin/sh \"$1\" &",
        "qstat": f"echo '{running}'",
        "qdel": f"echo \"$1\" >>{place}/cancelled",
        "bsub": "script=$(cat)\necho 'Job <7> is submitted to queue <normal>.'\n"
                "exec >/dev/null 2>&1\n"
                "LSB_MCPU_HOSTS='a 2 b 2' setsid /bin/sh -c \"$script\" job &",
        "bjobs": "echo '{\"RECORDS\": [{\"JOBID\": \"7\", \"STAT\": \"RUN\"}]}'",
        "bkill": f"echo \"$1\" >>{place}/cancelled",
        "mpirun": START, "jsrun": START,
    }
    for name, script in programs.items():
        hosts.program(place, name, script)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("NODES", answering)


@pytest.mark.parametrize("scheduler", ["pbs", "lsf"])
def test_each_node_answers_in_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str
) -> None:
    stand_in(tmp_path, monkeypatch)
    cluster = Cluster(scheduler=scheduler, scratch=tmp_path / "a scratch $(touch owned)")
    answers, silent = nodes.collect(cluster, 2, {"gpu": "nvidia"}, None, Silent(), 30, 30)
    assert [answer.node for answer in answers] == ["a", "b"]
    assert silent == []
    assert all(answer.number("memory") for answer in answers)
    assert cluster.scratch is not None
    assert list(cluster.scratch.iterdir()) == []
    assert not (tmp_path / "owned").exists()


def test_a_node_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, answering="a")
    cluster = Cluster(scheduler="pbs", scratch=tmp_path / "scratch")
    answers, silent = nodes.collect(cluster, 2, {}, None, Silent(), 30, 3)
    assert ([answer.node for answer in answers], silent) == (["a"], ["b"])
    assert "b " in caused("node-silent", [nodes.silent("b")], "fail").cause
    assert (tmp_path / "cancelled").read_text() == "7.server\n"


def test_a_job_that_is_not_started_in_time_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    hosts.program(tmp_path, "qsub", "echo 7.server")
    with refused("job-not-started", "7.server"):
        nodes.collect(Cluster(scheduler="pbs", scratch=tmp_path / "s"), 2, {}, None, Silent(), 1)
    assert (tmp_path / "cancelled").read_text() == "7.server\n"
    assert list((tmp_path / "s").iterdir()) == []


def test_a_batch_system_that_does_not_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    monkeypatch.setattr(nodes, "EVERY", 0.0)
    hosts.program(tmp_path, "mpirun", f"sleep 1\n{START}")
    hosts.program(tmp_path, "qstat", "echo 'Connection timed out' >&2\nexit 1")
    cluster = Cluster(scheduler="pbs", scratch=tmp_path / "scratch")
    answers, silent = nodes.collect(cluster, 2, {}, None, Silent(), 30, 30)
    assert ([answer.node for answer in answers], silent) == (["a", "b"], [])
    assert (tmp_path / "cancelled").read_text() == "7.server\n"


def test_a_path_that_the_batch_system_changes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    with refused("scheduler-unsupported", "100%"):
        nodes.collect(Cluster(scheduler="lsf", scratch=tmp_path / "100%"), 1, {}, None, Silent(), 1)
    (tmp_path / "file").write_text("")
    with refused("file-unwritable", "file"):
        nodes.collect(Cluster(scheduler="lsf", scratch=tmp_path / "file"), 1, {}, None, Silent(), 1)


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", "lsf"])
def test_the_job_has_what_the_tasks_of_the_recipe_have(tmp_path: Path, scheduler: str) -> None:
    recipe = library.load("resnet-imagenet/v100x8-throughput").recipe
    cluster = Cluster(scheduler=scheduler, modules=("openmpi/4.1",), signal_seconds=3600)
    text = nodes.job_script(tmp_path / "it's", SCHEDULERS[scheduler], cluster, 3, recipe)
    wanted = recipe.resources
    cores = wanted.cpus_per_task * wanted.tasks_per_node
    for word in {
        "slurm": ["--nodes=3", f"--cpus-per-task={cores}", "--gres=gpu:8", "--mpi=none"],
        "pbs": [f"select=3:ncpus={cores}:mpiprocs=1:ngpus=8", "load openmpi/4.1"],
        "lsf": ["-nnodes 3", f"--cpu_per_rs {cores}"],
    }[scheduler]:
        assert word in text
    (tmp_path / "job.sh").write_text(text)
    done = subprocess.run([SHELLCHECK, "--shell=sh", "-e", "SC1091", "job.sh"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nodes_stand_side_by_side_where_they_differ() -> None:
    def of(node: str, role: str, cause: str, level: str = "ok") -> NodeFindings:
        one = Finding.model_validate({"id": "memory", "level": level, "cause": cause})
        return NodeFindings.model_validate({"node": node, "role": role, "findings": [one]})

    here = of("here", "login", "8 GiB")
    for several, causes, level in (
        ([here], ("8 GiB",), "ok"),
        ([here, of("n1", "compute", "8 GiB")], ("8 GiB",), "ok"),
        ([here, of("n1", "compute", "9 GiB"), of("n2", "compute", "9 GiB"),
          of("n3", "compute", "1 GiB", "fail")],
         ("here (login): 8 GiB", "n1, n2: 9 GiB", "n3: FAIL 1 GiB"), "fail"),
    ):
        [row] = examination.rows(Examination(recipe=None, cluster=None, nodes=tuple(several)))
        assert (row.causes, row.level, row.group) == (causes, level, "machine")
    login = Finding(id="user", level="ok", cause="fine")
    found = Examination(recipe=None, cluster="c", nodes=(
        here.model_copy(update={"findings": (*here.findings, login)}), of("n1", "compute", "8 GiB"),
    ))
    assert [row.causes for row in examination.rows(found)] == [("8 GiB",), ("fine",)]
