"""Several trainings in one job: the real scripts, with stand-ins for Slurm and Apptainer.

tests/integration/test_several.py has a real Slurm, and its signal before the time limit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, Place, write_program
from refusals import refused
from sharedjobs import share
from trimaran.cluster import jobs, script, several, together, watch
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes import library
from trimaran.recipes.recipe import Resources
from trimaran.reporting import Silent
from trimaran.run import job_chain, run_directory
from trimaran.run.request import Request
from trimaran.site_file import Cluster

Trainings = Callable[..., tuple[Place, list[Path]]]
SEEN = 'env >env.txt; sed -n "s/^Cpus_allowed_list:[[:blank:]]*//p" /proc/self/status >cpus.txt\n'
"""Shell commands of a training: write its environment variables, and the CPUs that it may use."""


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainings:
    """Return a function that submits trainings together as job 7, and returns job and runs."""

    def submitted(count: int, gpus: int = 0, **site: object) -> tuple[Place, list[Path]]:
        cluster = Cluster.model_validate({"mpi": "pmi2", **site})
        place, runs = share(tmp_path / "a place", count, cluster, gpus)
        monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
        return place, runs

    return submitted


def ends(run: Path) -> list[int]:
    """Return the exit statuses of all ended executions of a run, the oldest first."""
    return [link.end.exit_status for link in job_chain.read(run) if link.end]


def variables(run: Path) -> dict[str, str]:
    lines = (run / "env.txt").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_each_training_has_its_own_files_share_and_end(trainings: Trainings) -> None:
    place, runs = trainings(2)
    code, said = place.run(SEEN)
    assert code == 0, said + (place.out / "log.txt").read_text()
    assert [ends(run) for run in runs] == [[0], [0]]
    usable = len(os.sched_getaffinity(0))
    shares = [(run / "cpus.txt").read_text().strip() for run in runs]
    if usable > 1:
        first, second = (numbered(share) for share in shares)
        assert len(first) == len(second) >= usable // 2
        assert not first & second
        assert [len(cpus) for cpus in (first, second)] == [
            host.cores for run in runs for host in run_directory.load(run).hosts
        ]
    ports = [variables(run)["APPTAINERENV_MASTER_PORT"] for run in runs]
    assert len(set(ports)) == 2
    assert run_directory.load(runs[0]).launch.task_starter == ("setsid",)  # type: ignore[union-attr]
    assert "setsid /bin/sh job/job.sh task" in (runs[0] / "log.txt").read_text()
    assert not list(place.root.rglob("owned"))


def numbered(cpus: str) -> set[int]:
    """Return the numbers in a list such as 0-3,8."""
    ends = [part.split("-") for part in cpus.split(",")]
    return {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}


def test_each_training_sees_its_own_gpu(
    trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, runs = trainings(3, gpus=1)
    code, said = place.run(SEEN)
    assert code == 0, said + (place.out / "log.txt").read_text()
    seen = [variables(run)["APPTAINERENV_CUDA_VISIBLE_DEVICES"] for run in runs]
    assert seen == ["0", "1", "2"]


def test_the_record_of_a_training_has_its_own_gpu_alone(trainings: Trainings) -> None:
    place, runs = trainings(2, gpus=1)
    write_program(place.root / "bin/nvidia-smi", """#!/bin/sh
case $1 in --id=0) echo A100 ;; --id=1) echo H100 ;; *) echo A100; echo H100; echo L4 ;; esac
""")
    code, said = place.run()
    assert code == 0, said + (place.out / "log.txt").read_text()
    assert [run_directory.load(run).host.accelerators for run in runs] == [["A100"], ["H100"]]


def test_a_failure_ends_no_other_training_and_is_the_status_of_the_job(
    trainings: Trainings,
) -> None:
    place, runs = trainings(3)
    code, _ = place.run("case $PWD in */2-*) exit 70 ;; esac; sleep 1")
    assert code == 70
    assert [ends(run) for run in runs] == [[0], [70], [0]]
    assert not place.requeued
    (place.root / "bin/queue").write_text("7|COMPLETING|None\n")
    states = [row.state for row in watch.look(runs)]
    assert states == ["completed", "failed", "completed"], "although the job is still active"


def test_a_damaged_run_is_refused_alone(trainings: Trainings) -> None:
    place, runs = trainings(2)
    with (runs[0] / "job/job.sh").open("a") as script_of_one:
        script_of_one.write("# edited\n")
    code, _ = place.run()
    assert code == 65
    assert ends(runs[0]) == []
    assert ends(runs[1]) == [0]
    refusal = job_chain.refusal(runs[0])
    assert refusal is not None
    assert "job/job.sh" in refusal.reason
    (place.root / "bin/queue").write_text("7|RUNNING|None\n")
    assert [row.state for row in watch.look(runs)] == ["failed", "completed"]


def test_an_edited_script_of_the_job_starts_nothing(trainings: Trainings) -> None:
    place, runs = trainings(2)
    with (place.out / "job/job.sh").open("a") as script_of_all:
        script_of_all.write("# edited\n")
    assert place.run()[0] == 65
    assert [ends(run) for run in runs] == [[], []]


def test_image_and_data_are_copied_once_and_removed(trainings: Trainings, tmp_path: Path) -> None:
    disk = tmp_path / "own disk"
    place, runs = trainings(4, local_storage=str(disk), stage_data=True)
    code, said = place.run(
        f"ls -i '{disk}'/trimaran-7-node | sort >copies.txt\n"
        "tr '\\0' '\\n' </proc/$$/cmdline >words.txt"
    )
    assert code == 0, said
    logs = "".join((run / "log.txt").read_text() for run in runs)
    copied = [line for line in logs.splitlines() if ": copied " in line]
    assert len(copied) == 2, logs
    assert len({(run / "copies.txt").read_text() for run in runs}) == 1, "the same inodes"
    words = (runs[0] / "words.txt").read_text()
    assert f"source={disk}/trimaran-7-node/" in words
    assert list(disk.iterdir()) == []


def test_what_has_ended_is_not_started_again(trainings: Trainings) -> None:
    place, runs = trainings(3)
    step = CHECKPOINT.format(step=5)
    code, _ = place.run(f"case $PWD in */1-*) {step}; exit 75 ;; */2-*) exit 3 ;; esac")
    assert code == 75
    code, _ = place.run()
    assert code == 3
    assert [ends(run) for run in runs] == [[75, 0], [3], [0]]


def test_one_training_can_be_resumed_alone(trainings: Trainings) -> None:
    place, runs = trainings(2)
    place.run("case $PWD in */1-*) exit 3 ;; esac")
    alone = Place(place.root, replace(place.job, directory=runs[0]))
    code, said = alone.run(number="8")
    assert code == 0, said
    assert ends(runs[0]) == [3, 0]


def test_cancelling_one_ends_all_and_says_so(trainings: Trainings) -> None:
    place, runs = trainings(2)
    (place.root / "bin/queue").write_text("7|RUNNING|None\n")
    notes = Silent()
    assert jobs.cancel([runs[1]], notes) == ["7"]
    assert any(str(runs[0]) in note for note in notes.notes)
    assert [job_chain.numbers(each, "cancelled") for each in (place.out, *runs)] == [["7"]] * 3
    assert jobs.cancel(runs) == ["7"]


def test_the_folder_is_no_run_and_lists_its_runs(trainings: Trainings) -> None:
    place, runs = trainings(2)
    assert watch.find([place.root]) == [place.root / "run", *runs]
    assert several.folders(place.out) == runs
    (place.out / "together.json").write_text('{"runs": ["../x"]}')
    with refused("file-invalid", place.out / "together.json"):
        several.folders(place.out)


DIVIDED = [
    ("0 0 0,0 1 1,0 2 2,0 3 3", 2, ["0,1", "2,3"]),
    ("0 0 0,0 0 4,0 1 1,0 1 5,1 0 2,1 0 6,1 1 3,1 1 7", 2, ["0,4,1,5", "2,6,3,7"]),
    ("0 0 0,0 0 4,0 1 1,0 1 5,1 0 2,1 0 6,1 1 3,1 1 7", 3, ["0,4", "1,5", "2,6"]),
    ("0 0 0,0 0 1", 2, ["0", "1"]),
    ("0 0 0,0 0 1", 3, []),
]
"""Hardware threads of a node, number of trainings, and the expected CPUs of each training.

A thread is written as three numbers: socket, core, CPU. [] means that no division is possible.
"""


@pytest.mark.parametrize(("threads", "count", "shares"), DIVIDED)
def test_shares_are_equal_and_have_no_core_in_common(
    threads: str, count: int, shares: list[str], tmp_path: Path
) -> None:
    assert shell(f"printf '%s\\n' {threads.replace(',', ' | ')!r} | tr '|' '\\n' | sed 's/^ *//;"
                 f"s/ *$//' | divide {count}", tmp_path).split() == shares


def shell(command: str, folder: Path) -> str:
    """Run a shell command that calls the functions for CPU lists of a job; return its output."""
    functions = script.functions()
    part = functions[functions.index("# numbers LIST"):functions.index("# take COUNT")]
    return subprocess.run(["sh", "-euc", part + command], cwd=folder, capture_output=True,
                          text=True, check=True).stdout


def request(name: str, **more: object) -> Request:
    changes = more.pop("changes", {})
    file = library.load(name)
    wanted = Resources.model_validate({**file.recipe.resources.model_dump(), **more})
    recipe = file.recipe.model_copy(update={"resources": wanted})
    assert isinstance(changes, dict)
    return Request(replace(file, recipe=recipe), Apptainer("apptainer"), changes, queued=True)


ONE = "resnet-imagenet/cpu-quickstart"


def test_what_cannot_share_a_node_is_refused() -> None:
    seeds = [request(ONE, changes={"seed": seed}) for seed in (1, 2)]
    together.check(seeds)
    with refused("arguments-conflict", "--together"):
        together.check(seeds[:1])
    with refused("run-repeated", ONE):
        together.check([*seeds, seeds[0]])
    for name in ("cpu-2node-smoke", "cpu-2core-2ranks-smoke", "a100x1-256px-mps4-throughput"):
        with refused("recipe-unsupported", name):
            together.check([*seeds, request(f"resnet-imagenet/{name}")])
    small = [request(ONE, cpus_per_task=1, changes={"seed": seed}) for seed in (1, 2, 3)]
    with refused("node-too-small", "cpu-2core"):
        together.check(small)
    gpus = [request("resnet-imagenet/a100x1-throughput", changes={"seed": seed})
            for seed in range(4)]
    together.check(gpus)
    assert together.shape(gpus).gpus_per_node == 4


def test_the_job_has_the_largest_share_and_the_longest_limit() -> None:
    shape = together.shape([
        request(ONE, walltime="01:00:00", cpus_per_task=2),
        request(ONE, walltime="00:30:00", cpus_per_task=8),
    ])
    assert (shape.cpus_per_task, shape.walltime, shape.tasks) == (16, "01:00:00", 1)


def test_the_record_names_the_shared_job(trainings: Trainings) -> None:
    place, runs = trainings(2)
    record = json.loads((runs[0] / "run.json").read_text())["job"]
    assert record["together"] == together.job_name(place.out, place.job.scheduler)
    assert record["name"] != record["together"]
