"""Recipes that start from each other: the order, the checkpoint, and the job that queues the next.

The scripts are run with stand-ins for the batch systems' commands and Apptainer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, Place, make, noting, write_program
from refusals import refused
from sharedjobs import used
from trimaran.cluster import jobs, recipe_chain, submission, watch
from trimaran.cluster.script import SCHEDULERS
from trimaran.engines.apptainer import Apptainer
from trimaran.files import sha256
from trimaran.recipes import library
from trimaran.run import job_chain, run_directory
from trimaran.run.request import Request
from trimaran.site_file import Cluster
from trimaran.verdict import run_verdict

CYCLIC = [f"resnet-imagenet/skx8160-2s-cyclic{part}-convergence" for part in range(1, 6)]
NUMBER = {"slurm": "8", "pbs": "8.server", "lsf": "Job <8> is submitted to queue <batch>."}
QUEUES = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub"}
DONE = f"{CHECKPOINT.format(step=12)}; echo weights >checkpoints/step-00000012.npz"


def request(name: str, **changes: int) -> Request:
    return Request(library.load(name), Apptainer("apptainer"), dict(changes), queued=True)


def test_the_published_cyclic_run_is_a_chain() -> None:
    requests = [request(name) for name in CYCLIC]
    recipe_chain.check(requests)
    assert recipe_chain.start_step(requests[1].recipe, requests[0].recipe) == 7800


def test_a_point_of_a_series_is_the_step_of_that_point() -> None:
    first = "chexnet/skx6148-2s-pretrain-convergence"
    second = library.load("chexnet/skx6148-2s-resnet50-convergence")
    steps = [recipe_chain.start_step(second, library.load(f"{first}@{point}"))
             for point in (200, 256)]
    assert steps == [9660, 9420]


def test_a_wrong_order_is_refused_with_the_right_one() -> None:
    mixed = [request(CYCLIC[number]) for number in (1, 0, 2)]
    with refused("chain-broken", CYCLIC[0], CYCLIC[1]) as caught:
        recipe_chain.check(mixed)
    assert f"{CYCLIC[0]} {CYCLIC[1]} {CYCLIC[2]} --chain" in (caught.value.hint or "")
    with refused("chain-broken", "resnet-imagenet/cpu-quickstart"):
        recipe_chain.check([request("resnet-imagenet/cpu-quickstart"), request(CYCLIC[1])])
    with refused("arguments-conflict", "--chain"):
        recipe_chain.check([request(CYCLIC[0])])


@pytest.mark.parametrize("last", [3749, 3751])
def test_another_last_step_is_refused(last: int) -> None:
    other = request(CYCLIC[1], **{"max-steps": last})
    with refused("chain-broken", f"step {last}"):
        recipe_chain.check([other, request(CYCLIC[2])])


def linked(root: Path, scheduler: str = "slurm") -> tuple[Place, Place]:
    """Create two runs; the second starts from the checkpoint at step 12 of the first."""
    place = make(root / "a place", cluster=Cluster.model_validate(
        {"mpi": "pmi2", "scheduler": scheduler}))
    write_program(place.root / "bin" / QUEUES[scheduler], noting(said=NUMBER[scheduler]))
    folder = place.root / "chain $(touch owned)"
    first = replace(place.job, directory=folder / "1-x y")
    initial = first.directory / "checkpoints/step-00000012.npz"
    second = replace(
        place.job, directory=folder / "2-x y", before=first.directory,
        request=replace(place.job.request, initial=initial, to_come=True),
    )
    first = replace(first, following=(second.directory, initial))
    for job in (first, second):
        submission.write(job, used(place), "test")
    (first.directory / "job/ids").write_text("7\n")
    return Place(place.root, first), Place(place.root, second)


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, Place]:
    first, second = linked(tmp_path)
    monkeypatch.setenv("PATH", f"{first.root / 'bin'}:/usr/bin:/bin")
    return first, second


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_completed_run_queues_the_next(scheduler: str, tmp_path: Path) -> None:
    first, second = linked(tmp_path, scheduler)
    code, said = first.run(DONE)
    assert code == 0, said + (first.out / "log.txt").read_text()
    [number] = job_chain.numbers(second.out)
    assert number.partition(".")[0] == "8"
    assert not jobs.is_queueing(second.out)
    assert not list(first.root.rglob("owned"))


def test_the_next_run_records_the_checkpoint_when_it_starts(chain: tuple[Place, Place]) -> None:
    first, second = chain
    first.run(DONE)
    record = run_directory.load(second.out)
    assert record.initial is not None
    assert record.initial.sha256 is None
    code, said = second.run(number="8")
    assert code == 0, said
    record = run_directory.load(second.out)
    assert record.initial is not None
    weights = first.out / "checkpoints/step-00000012.npz"
    assert record.initial.sha256 == sha256(weights)
    assert f"type=bind,source={weights},destination=/initial.npz,ro" in second.recorded("argv")
    recipe = second.job.recipe
    assert not [fault for fault in run_verdict.chain_faults(second.out, record, recipe, None)
                if "npz" in fault]
    [link] = (second.out / "job").glob("link-0001.json")
    honest = link.read_text()
    link.write_text(honest.replace(sha256(weights), "0" * 64))
    other = record.initial.model_copy(update={"sha256": sha256(weights)})
    faults = run_verdict.chain_faults(
        second.out, record.model_copy(update={"initial": other}), recipe, None)
    assert [fault for fault in faults if str(weights) in fault]
    link.write_text(honest)
    weights.write_text("others\n")
    code, said = second.run(number="9")
    assert code == 65, said
    assert len(job_chain.read(second.out)) == 1


def test_a_failed_run_blocks_the_next_until_it_is_resumed(chain: tuple[Place, Place]) -> None:
    first, second = chain
    (first.out / "job/ids").write_text("7\n")
    (first.root / "bin/queue").write_text("7|RUNNING|None\n")
    assert watch.look([second.out])[0].state == "waiting"
    (first.root / "bin/queue").write_text("")
    assert first.run("exit 3")[0] == 3
    assert job_chain.numbers(second.out) == []
    row = watch.look([first.out, second.out])[1]
    assert row.state == "blocked"
    assert f"trimaran resume {first.out}" in row.reason
    write_program(first.root / "bin/scancel", "#!/bin/sh\n")
    with refused("initial-missing", first.out):
        jobs.again(second.out)
    assert first.run(DONE, number="9")[0] == 0
    assert job_chain.numbers(second.out) == ["8"]


def test_a_run_that_waits_for_itself_is_blocked(chain: tuple[Place, Place]) -> None:
    _, second = chain
    record = json.loads((second.out / "run.json").read_text())
    record["job"]["before"] = str(second.out)
    (second.out / "run.json").write_text(json.dumps(record, indent=2) + "\n")
    row = watch.look([second.out])[0]
    assert row.state == "blocked"
    assert f"{second.out}: `before` in run.json" in row.reason


def test_a_run_without_the_checkpoint_does_not_start_the_next(chain: tuple[Place, Place]) -> None:
    first, second = chain
    assert first.run(CHECKPOINT.format(step=13))[0] == 0
    assert job_chain.numbers(second.out) == []
    row = watch.look([second.out])[0]
    assert row.state == "failed"
    assert "step-00000012.npz" in row.reason
    code, said = second.run(number="8")
    assert code == 66, said


def test_a_cancelled_run_does_not_start_the_next(chain: tuple[Place, Place]) -> None:
    first, second = chain
    assert first.run(f"{DONE}; echo 7 >>job/cancelled")[0] == 0
    assert job_chain.numbers(second.out) == []


def test_a_batch_system_that_refuses_the_next_job_is_the_reason(
    chain: tuple[Place, Place],
) -> None:
    first, second = chain
    write_program(first.root / "bin/sbatch", noting(said="no", code=1))
    assert first.run(DONE)[0] == 0
    row = watch.look([second.out])[0]
    assert row.state == "failed"
    assert "trimaran resume" in row.reason


def test_a_waiting_run_starts_nothing_twice(chain: tuple[Place, Place]) -> None:
    first, second = chain
    (second.out / "job/ids").write_text("6\n")
    assert first.run(DONE)[0] == 0
    assert job_chain.numbers(second.out) == ["6"]
