"""All launchers of `submit`, with containers of resnet-imagenet on a real Slurm cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import cluster
from faults import NAME, RECIPE, Place, Run

pytestmark = [
    pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"), pytest.mark.trains,
    pytest.mark.usefixtures("user_cache"), pytest.mark.timeout(280),
]
SHORT = {
    **{name: value for name, value in RECIPE["args"].items() if name != "checkpoint-every"},
    "steps": 8, "batch-size-per-rank": 16, "log-every": 1,
}
ANY_SPEED = {"metric": "throughput", "unit": "img/s", "at": "end", "value": 1.0, "lower": -0.5,
             "source": "none: each training reaches it"}
BY_ONE = SHORT | {"strategy": "single", "accumulation": 2, "batch-size-per-rank": 32}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("c")
    cluster.start(folder)
    try:
        # A fabric that is named, and that no machine of the tests has.
        yield Place(tmp_path_factory.mktemp("launchers"), folder, site={
            "mpi": "pmix", "fabric": "infiniband", "fabric_missing": "warn",
        })
    finally:
        cluster.stop(folder)


def losses(place: Place, launcher: str, nodes: int, tasks: int, **args: Any) -> list[float]:
    """Train on `nodes` nodes with `tasks` tasks per node; return the training loss of each step."""
    place.write(
        launcher=launcher, args=SHORT | args, expected=[ANY_SPEED], resources={
            "nodes": nodes, "tasks_per_node": tasks, "cpus_per_task": 1, "walltime": "00:05:00",
        },
    )
    run = place.submit()
    assert run.finish()["state"] == "completed", run.log
    assert len(run.links()[0].hosts) == nodes
    judged = place.trimaran("report", str(run.out), check=False)
    assert judged.returncode == (1 if nodes > 1 else 0), judged.stdout + judged.stderr
    if nodes > 1:
        assert_over_tcp(run, {"ddp": "Gloo", "horovod": "Open MPI"}[args["strategy"]])
    return [line["value"] for line in run.metrics() if line["key"] == "train_loss"]


def assert_over_tcp(run: Run, library: str) -> None:
    """Check that a run over TCP fails despite sufficient throughput, and names the cause."""
    assert "warning: " in run.log
    assert "fabric infiniband: no device /dev/infiniband/uverbs*" in run.log
    [row] = [row for row in json.loads((run.out / "verdict.json").read_text())["verdict"]["rows"]
             if row["required"]]
    assert row["low"] < row["measured"]
    assert row["outcome"] == "FAIL"
    assert f"{library} sent over TCP" in row["fault"]
    assert "fabric" in row["fault"].partition(": ")[2]
    used = json.loads((run.out / "run.json").read_text())["fabric"]
    assert used["wanted"] == "infiniband"
    assert library in [one["library"] for one in used["carried"]]
    assert used["backend"] == {"Gloo": "gloo", "Open MPI": "mpi"}[library]
    assert "(TCP)" in (run.out / "report.md").read_text()


@pytest.fixture(scope="module")
def alone(place: Place) -> list[float]:
    """Return the losses of one process that divides each batch into two parts."""
    return losses(place, "none", 1, 1, **BY_ONE)


@pytest.mark.parametrize(
    ("launcher", "nodes", "tasks", "strategy"),
    [
        ("srun", 2, 1, "ddp"),
        pytest.param("mpirun", 2, 1, "horovod", marks=pytest.mark.engine("openmpi")),
        pytest.param("srun", 1, 2, "horovod", marks=pytest.mark.long),
        pytest.param("srun", 2, 1, "horovod", marks=pytest.mark.long),
        pytest.param("torchrun", 2, 1, "ddp", marks=pytest.mark.long),
        pytest.param("torchrun", 1, 2, "ddp", marks=pytest.mark.long),
        pytest.param("mpirun", 1, 2, "horovod", marks=pytest.mark.long),
        pytest.param("horovodrun", 1, 2, "horovod", marks=pytest.mark.long),
    ],
)
def test_two_ranks_train_as_one_does_with_two_parts(
    place: Place, alone: list[float], launcher: str, nodes: int, tasks: int, strategy: str
) -> None:
    found = losses(place, launcher, nodes, tasks, strategy=strategy)
    assert found == pytest.approx(alone, rel=1e-5)


def test_a_node_without_the_named_fabric_refuses_the_job(place: Place) -> None:
    site = {"mpi": "pmix", "fabric": "infiniband"}
    strict = Place(place.root / "strict", place.folder, site)
    strict.write(args=SHORT)
    run = strict.submit()
    assert run.finish()["state"] == "failed", run.log
    assert "fabric infiniband: no device /dev/infiniband/uverbs*" in run.state()["why"]
    assert not run.metrics()


@pytest.mark.long
def test_a_scaling_series_has_a_table_and_a_plot(place: Place) -> None:
    place.write(args=SHORT)
    out = place.root / "series"
    place.trimaran("submit", NAME, "--nodes", "1,2", "--out", str(out))
    rows = place.trimaran("status", str(out / "nodes-0001"), str(out / "nodes-0002")).stdout
    assert "nodes-0002" in rows
    for name in ("nodes-0001", "nodes-0002"):
        assert Run(place, out / name).finish()["state"] == "completed"
    done = place.trimaran("report", str(out), check=False)
    assert done.returncode == 5
    assert "efficiency" in done.stdout
    assert (out / "scaling.svg").is_file()
    assert "| 2 | 2 |" in (out / "scaling.md").read_text()
