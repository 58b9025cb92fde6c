"""The app keras-resnet in its container: every strategy, on one node and on two nodes of Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cluster
from inside import MPIRUN, START_RANK, inside, mpirun, run_inside
from trimaran import process
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

pytestmark = [
    pytest.mark.trains, pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]
TRAINING = [
    "-m", "keras_resnet", "train", "--synthetic", "--model", "Small", "--size", "32", "--epochs",
    "1", "--max-steps", "4", "--batch-size", "30", "--momentum", "0.9", "--learning-rate", "0.1",
    "--eval-every", "0", "--log-every", "1", "--threads", "1", "--device", "cpu",
]


@pytest.fixture(scope="module")
def built() -> BuiltImage:
    """Build the image of the app."""
    image = definition.load("keras-resnet-tensorflow-cpu")
    return Apptainer().build(image, base=None, offline=False, reporter=Silent())


def losses(out: Path) -> list[float]:
    """Return the loss of each step of the run in `out`."""
    lines = map(json.loads, (out / "run/metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == "train_loss"]


@pytest.fixture(scope="module")
def alone(built: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Return the losses of one process that divides each batch into two micro-batches."""
    out = tmp_path_factory.mktemp("alone")
    run_inside(built, out, ["python", *TRAINING, "--out", "/out/run", "--accumulation", "2"])
    return losses(out)


@pytest.mark.parametrize(("strategy", "start", "more"), [
    ("mirrored", ["python"], ["--replicas", "2"]),
    ("multiworker", MPIRUN, []),
    ("parameter-server", mpirun(4), ["--synchronous"]),  # coordinator, server, two workers
    ("horovod", MPIRUN, []),
])
def test_two_replicas_train_like_one_process(
    strategy: str, start: list[str], more: list[str], built: BuiltImage, alone: list[float],
    tmp_path: Path,
) -> None:
    words = [*TRAINING, "--out", "/out/run", "--strategy", strategy, *more]
    run_inside(built, tmp_path, [*start, *words])
    assert losses(tmp_path) == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize(("strategy", "ranks", "more"), [
    ("multiworker", 1, []), ("parameter-server", 2, ["--synchronous"]),
])
def test_two_nodes_train_like_one_process(
    strategy: str, ranks: int, more: list[str], built: BuiltImage, slurm: Path,
    alone: list[float], tmp_path: Path,
) -> None:
    """The strategy derives TF_CONFIG from Slurm's variables; each node has `ranks` ranks."""
    words = [*TRAINING, "--out", "/out/run", "--strategy", strategy, *more]
    argv, env = inside(built, tmp_path, ["python", *words])
    reach = {
        "APPTAINERENV_MASTER_ADDR": "127.0.0.1",
        "APPTAINERENV_MASTER_PORT": str(cluster.free_ports(1)[0]),
    }
    srun = ["srun", "--nodes=2", f"--ntasks-per-node={ranks}", "--overcommit", "--mpi=none",
            "--kill-on-bad-exit=1", "sh", "-c", START_RANK, "sh"]
    done = process.run(
        [*srun, *argv], env={**env, **reach, "SLURM_CONF": str(slurm / "slurm.conf")}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(tmp_path) == pytest.approx(alone, abs=1e-4)
