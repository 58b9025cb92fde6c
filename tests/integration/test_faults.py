"""Real faults of runs on a cluster: nothing is lost, repeated or damaged.

The tests use the two-node Slurm of `make cluster`, and resnet-imagenet with two ranks. `make test`
runs tests of less than a minute, `make test-faults` all others. site/docs/tutorials/cluster.md
lists the faults.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import cluster
from faults import RECIPE, STEPS, Place, Run, lose, ranks, revive, small_disk
from trimaran.recipes import library
from trimaran.run import run_directory

pytestmark = [
    pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"), pytest.mark.trains,
    pytest.mark.usefixtures("user_cache"), pytest.mark.timeout(600),
]

NOTICED = 30  # seconds
EVERY = RECIPE["args"]["checkpoint-every"]
WRITING = 4  # steps: a checkpoint of this network is written in less than a second


@pytest.fixture
def place(slurm: Path, tmp_path: Path) -> Iterator[Place]:
    cluster.start(slurm)  # where a test before has lost a node
    here = Place(tmp_path, slurm)
    here.write()
    yield here
    here.slurm("scancel", "--me")


@pytest.fixture(scope="module")
def undisturbed(slurm: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the run of the same training without a fault."""
    here = Place(tmp_path_factory.mktemp("undisturbed"), slurm)
    here.write()
    run = here.submit()
    assert run.finish()["state"] == "completed", run.log
    return run


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.faults) for seed in range(1, 10))]
)
def test_a_rank_is_killed_at_a_random_step(place: Place, undisturbed: Run, seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 - which step, no secret
    run = place.submit()
    run.reach(choice.randrange(4, STEPS - 8))
    time.sleep(choice.random())
    os.kill(ranks(run)[choice.choice([0, 1])], signal.SIGKILL)
    assert run.wait(run.ended) < NOTICED
    assert run.state()["state"] == "failed"
    reached = run.step()
    assert run.resume()["state"] == "completed", run.log
    # An interval, and what was made while a checkpoint was being written in the background.
    assert reached - run.links()[-1].step <= EVERY + WRITING
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_a_node_is_lost_and_comes_back(place: Place, undisturbed: Run) -> None:
    run = place.submit()
    run.reach(12)
    lose("n2", place.folder)
    assert run.wait(lambda: "error[rank-lost]" in run.log) < NOTICED
    run.wait(lambda: run.state()["state"] != "running")
    revive("n2", place.folder)
    row = run.finish()
    if row["state"] != "completed":  # the ranks noticed it before Slurm did
        row = run.resume()
    assert row["state"] == "completed", run.log
    assert len(run.links()) > 1
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_an_elastic_run_goes_on_without_a_lost_node(place: Place, undisturbed: Run) -> None:
    place.write(resources={"nodes": 2, "tasks_per_node": 1, "cpus_per_task": 1,
                           "walltime": "00:10:00", "min_nodes": 1})
    run = place.submit()
    run.reach(20)
    saved = max((run.out / "checkpoints").glob("step-*.npz")).name
    lose("n2", place.folder)
    assert run.finish()["state"] == "completed", run.log
    first, second = run.links()
    assert (len(first.hosts), len(second.hosts)) == (2, 1)
    assert first.end is not None
    assert "a node was lost" in first.end.reason
    assert second.step >= int(saved[5:13]), "only what came after the last checkpoint is lost"
    said = place.trimaran("report", str(run.out), check=False).stdout
    assert f"from step {second.step} on 1 ranks, before 2" in said
    losses = [line["value"] for line in run.metrics() if line["key"] == "train_loss"]
    wanted = [line["value"] for line in undisturbed.metrics() if line["key"] == "train_loss"]
    assert losses == pytest.approx(wanted, rel=1e-3), "the same batch, in the same parts"
    run.check_metrics()


@pytest.mark.faults
def test_torchrun_goes_on_without_a_lost_node(place: Place) -> None:
    place.write(launcher="torchrun", resources={
        "nodes": 2, "tasks_per_node": 1, "cpus_per_task": 1, "walltime": "00:10:00", "min_nodes": 1,
    })
    run = place.submit()
    run.reach(20)
    lose("n2", place.folder)
    assert run.finish(300)["state"] == "completed", run.log
    said = place.trimaran("report", str(run.out), check=False).stdout
    assert "on 1 ranks, before 2" in said
    assert run.step() == STEPS
    run.check_metrics()


def test_the_scheduler_is_restarted(place: Place, undisturbed: Run) -> None:
    run = place.submit()
    run.reach(8)
    for pid in cluster.pids(place.folder, ("slurmctld",)):
        os.kill(pid, signal.SIGKILL)
    run.reach(16)
    cluster.run([cluster.find("slurmctld"), "-f", place.folder / "slurm.conf"], place.folder)
    assert run.finish()["state"] == "completed", run.log
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_it_is_preempted(place: Place, undisturbed: Run) -> None:
    place.site["partition"] = "low"
    run = place.submit()
    run.reach(12)
    place.slurm("sbatch", "--parsable", "-phigh", "-N2", "--exclusive", "--wrap", "sleep 3")
    run.wait(lambda: len(run.links()) > 1)
    assert run.finish()["state"] == "completed", run.log
    first, _second = run.links()
    assert first.end is not None
    assert first.end.reason.startswith("preempted: it goes on from step ")
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_it_is_killed_while_it_writes_a_checkpoint(place: Place, undisturbed: Run) -> None:
    run = place.submit("--set", "checkpoint-every=1")
    run.reach(12)
    run.wait(lambda: any(
        not path.name.endswith(".npz") for path in (run.out / "checkpoints").iterdir()
    ))
    place.slurm("scancel", "--full", "--signal=KILL", run.job)
    run.wait(run.ended)
    assert run.resume()["state"] == "completed", run.log
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_three_time_limits_are_one_run_with_one_verdict(place: Place) -> None:
    published = yaml.safe_load(library.load("resnet-imagenet/cpu-2node-smoke").path.read_text())
    place.write(args=published["args"] | {"checkpoint-every": 20, "keep": 20, "log-every": 5},
                expected=published["expected"])
    undisturbed = place.submit()
    assert undisturbed.finish()["state"] == "completed", undisturbed.log
    run = place.submit()
    for step, number in ((15, 1), (45, 2), (75, 3)):
        run.reach(step)
        assert len(run.links()) == number
        # As Slurm does, `signal_seconds` before the limit.
        place.slurm("scancel", "--batch", "--signal=USR1", run.job)
        run.wait(lambda: len(run.links()) > number)  # noqa: B023 - called within the turn
    assert run.finish()["state"] == "completed", run.log
    run.check_whole(undisturbed)
    judged = place.trimaran("report", str(run.out))
    assert judged.stdout.count("VERDICT PASS") == 1
    assert len(run_directory.load(run.out).resumed) == 3
    shown = (run.out / "report.md").read_text()
    for link in run.links():
        row = rf"^\| {link.number} \| {link.job} \| 2 .*\| {link.step} "
        assert re.search(row, shown, re.MULTILINE), shown


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_real_time_limit_with_copies_on_each_node(place: Place) -> None:
    """A run at its time limit goes on in a new job, and removes its copies from the nodes' disks.

    Slurm sends the signal before the time limit up to a minute earlier than requested.
    """
    own = place.root / "own disk"
    place.site |= {"local_storage": str(own), "stage_data": True, "signal_seconds": 45}
    place.write(args=RECIPE["args"] | {"steps": 1600},
                resources=RECIPE["resources"] | {"walltime": "00:02:00"})
    run = place.submit()
    run.reach(4)
    for node in ("n1", "n2"):
        [copies] = own.glob(f"trimaran-*-{node}")
        assert {path.name for path in copies.iterdir()} == {"image.sif", "data1"}
    assert run.finish(1000)["state"] == "completed", run.log
    assert run.step() == 1600
    run.check_metrics()
    *links, _last = run.links()
    assert links
    for link in links:
        assert link.end is not None
        assert link.end.reason == f"the time limit came: it goes on from step {link.end.step}"
    leaves_the_queue(place)  # the copies go after the end was written down
    assert not list(own.iterdir())


@pytest.mark.faults
@pytest.mark.engine("openmpi")
@pytest.mark.parametrize(
    ("launcher", "nodes", "tasks", "strategy"),
    [("torchrun", 2, 1, "ddp"), ("torchrun", 1, 2, "ddp"), ("mpirun", 2, 1, "horovod"),
     ("mpirun", 1, 2, "horovod"), ("horovodrun", 1, 2, "horovod")],
)
def test_a_time_limit_reaches_the_ranks_of_every_launcher(
    place: Place, launcher: str, nodes: int, tasks: int, strategy: str
) -> None:
    place.write(
        launcher=launcher, args=RECIPE["args"] | {"strategy": strategy}, resources={
            "nodes": nodes, "tasks_per_node": tasks, "cpus_per_task": 1, "walltime": "00:10:00",
        },
    )
    run = place.submit()
    run.reach(12)
    place.slurm("scancel", "--batch", "--signal=USR1", run.job)
    run.wait(lambda: len(run.links()) > 1)
    first = run.links()[0]
    assert first.end is not None
    assert first.end.exit_status == 75, run.log
    assert re.search(rf"stopped by SIG\w+ after step {first.end.step}\b", run.log), run.log
    assert run.finish()["state"] == "completed", run.log
    assert run.step() == STEPS


@pytest.mark.faults
def test_the_disk_is_full_during_a_checkpoint(place: Place, undisturbed: Run) -> None:
    disk = place.root / "disk"
    end = small_disk(disk, 24)
    try:
        run = place.submit(out=disk / "run")
        run.reach(12)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 16))
            except OSError:
                pass
        run.wait(run.ended)
        assert "cannot write checkpoint" in run.log, run.log
        assert "continue with --resume auto" in run.log
        ballast.unlink()
        assert run.resume()["state"] == "completed", run.log
        run.check_whole(undisturbed)
    finally:
        end()


def leaves_the_queue(place: Place) -> None:
    """Check that the queue soon contains no job of the user, including requeued jobs."""
    deadline = time.monotonic() + NOTICED
    while place.slurm("squeue", "-h", "--me"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.faults
def test_the_run_directory_is_gone_before_it_starts(place: Place) -> None:
    hold = place.slurm("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60")
    run = place.submit()
    shutil.rmtree(run.out)
    place.slurm("scancel", hold)
    leaves_the_queue(place)
    assert not run.out.exists()


@pytest.mark.faults
def test_the_run_directory_is_removed_while_it_trains(place: Place) -> None:
    run = place.submit()
    run.reach(12)
    run.out.rename(place.root / "removed")
    shutil.rmtree(place.root / "removed")
    leaves_the_queue(place)
    assert not run.out.exists()


@pytest.mark.faults
def test_the_run_directory_becomes_read_only(place: Place, undisturbed: Run) -> None:
    hold = place.slurm("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60")
    run = place.submit()
    job_folder = run.out / "job"
    job_folder.chmod(0o555)
    place.slurm("scancel", hold)
    try:
        run.wait(run.ended)
    finally:
        job_folder.chmod(0o755)
    assert run.state()["state"] == "failed"
    assert run.resume()["state"] == "completed", run.log
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_a_rank_hangs_and_is_named(place: Place, undisturbed: Run) -> None:
    run = place.submit()
    run.reach(12)
    stopped = ranks(run)[1]
    os.kill(stopped, signal.SIGSTOP)
    assert run.wait(lambda: "nothing has moved for" in run.log) < NOTICED
    run.wait(run.ended)  # the stopped rank is killed after the cluster's KillWait
    assert "rank 1 is silent" in run.log
    assert "rank 0 is " in run.log
    assert run.resume()["state"] == "completed", run.log
    run.check_whole(undisturbed)


@pytest.mark.faults
def test_a_shard_is_corrupt_on_one_rank(place: Place) -> None:
    """If one rank reads a corrupt image, the run fails, and the error names rank and shard.

    The other rank reports that it has lost a rank.
    """
    from trimaran.data import cache, contracts

    data = place.root / "data"
    shutil.copytree(cache.folder(contracts.load("fashion-mnist")), data)
    run_words = ("--data", str(data))
    hold = place.slurm("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60")
    run = place.submit(*run_words)
    for shard in sorted(data.glob("train*.tar")):
        content = bytearray(shard.read_bytes())
        for found in [*re.finditer(b"IDAT", content)][::1000]:  # pixels
            content[found.end() : found.end() + 20] = b"\xff" * 20
        shard.write_bytes(content)
    place.slurm("scancel", hold)
    row = run.finish()
    assert row["state"] == "failed"
    assert run_directory.load(run.out).exit_status == 3, run.log
    error = r"rank ([01]): error\[image-undecodable\]: \S*train-\d+\.tar: record "
    (met,) = re.findall(error, run.log)
    assert f"rank {1 - int(met)}: error[rank-lost]: " in run.log


@pytest.mark.parametrize("mpi", ["none", pytest.param("pmi2", marks=pytest.mark.faults)])
def test_the_wrong_mpi_is_told_with_the_remedy(place: Place, mpi: str) -> None:
    place.site["mpi"] = mpi
    run = place.submit("--set", "strategy=horovod")
    row = run.finish()
    assert row["state"] == "failed"
    assert "needs pmix (mpi in the site file)" in row["why"]
    assert run.step() == 0


@pytest.mark.faults
def test_the_same_run_is_submitted_twice(place: Place, undisturbed: Run) -> None:
    run = place.submit()
    run.reach(4)
    again = place.trimaran("resume", str(run.out), check=False)
    assert again.returncode == 2
    by_hand = subprocess.run(
        ["sbatch", "--parsable", "--overcommit", "-N1", "-n1", "--wait", "job/job.sh"], cwd=run.out,
        env=place.env(), capture_output=True, text=True, check=False, timeout=300,
    )
    assert by_hand.returncode == 73
    assert f"the job {run.job} runs in {run.out}: this one ends" in run.log
    assert run.finish()["state"] == "completed", run.log
    run.check_whole(undisturbed)


@pytest.mark.faults
@pytest.mark.alone  # the image is the user's
def test_the_image_is_gone(place: Place, tmp_path: Path) -> None:
    hold = place.slurm("sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 60")
    run = place.submit()
    image = Path(run_directory.load(run.out).image.reference)
    aside = image.with_suffix(".aside")
    image.rename(aside)
    try:
        place.slurm("scancel", hold)
        assert run.finish()["state"] == "failed"
        assert "is not there" in run.state()["why"]
    finally:
        aside.rename(image)
    assert run.resume()["state"] == "completed", run.log
