"""The app language-model in its container: every layout, on one node and on two nodes of Slurm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import cluster
from inside import START_RANK, inside, run_inside
from trimaran import paths, process
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

pytestmark = [
    pytest.mark.trains, pytest.mark.engine("apptainer"), pytest.mark.engine("slurm"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]
STEPS = 4
WORKER = paths.repository() / "apps/language-model/tests"
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"one process": {}},
    2: {
        "DDP": {}, "ZeRO-1": {"data_parallel": "zero1"}, "ZeRO-2": {"data_parallel": "zero2"},
        "FSDP": {"data_parallel": "fsdp"}, "tensor 2": {"tensor": 2},
        "pipeline 2": {"pipeline": 2, "micro_batches": 2}, "context 2": {"context": 2},
    },
    4: {
        "DDP": {}, "FSDP": {"data_parallel": "fsdp"},
        "tensor 2 x pipeline 2": {"tensor": 2, "pipeline": 2, "micro_batches": 2},
        "FSDP 2 x tensor 2": {"data_parallel": "fsdp", "tensor": 2},
        "context 2 x tensor 2": {"context": 2, "tensor": 2},
    },
}
"""Number of ranks -> name of a layout -> layout (how the ranks divide the training)."""


@pytest.fixture(scope="module")
def built() -> BuiltImage:
    """Build the image of the app."""
    image = definition.load("language-model-torch-cpu")
    return Apptainer().build(image, base=None, offline=False, reporter=Silent())


def jobs(ranks: int, out: Path) -> Sequence[str]:
    """Write the layouts to train with `ranks` ranks to a file; return the worker's command line.

    The worker is the script `layout_worker.py` in the container. The command line is a list of
    words without the interpreter.
    """
    wanted = [{"layout": layout, "steps": STEPS} for layout in LAYOUTS[ranks].values()]
    (out / "jobs.json").write_text(json.dumps(wanted))
    return ["/worker/layout_worker.py", "/out/jobs.json", "/out/results.json"]


def results(ranks: int, out: Path) -> dict[str, dict[str, Any]]:
    """Return layout name -> losses and gradient norms, as the worker script wrote them."""
    return dict(zip(LAYOUTS[ranks], json.loads((out / "results.json").read_text()), strict=True))


def by_torchrun(built: BuiltImage, ranks: int, out: Path) -> dict[str, dict[str, Any]]:
    """Train with each layout for `ranks` ranks in one container; return layout name -> result."""
    start = ["python", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    run_inside(built, out, [*start, *jobs(ranks, out)], Mount(str(WORKER), "/worker"))
    return results(ranks, out)


@pytest.fixture(scope="module")
def alone(built: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the losses and gradient norms of a training with one process, as the reference."""
    return by_torchrun(built, 1, tmp_path_factory.mktemp("alone"))["one process"]


def check(found: dict[str, dict[str, Any]], alone: dict[str, Any]) -> None:
    """Check that the losses and gradient norms of each layout equal those of one process."""
    for name, result in found.items():
        assert result["losses"] == pytest.approx(alone["losses"], abs=1e-4), name
        assert result["norms"] == pytest.approx(alone["norms"], abs=1e-4), name


@pytest.mark.parametrize("ranks", [2, 4])
def test_torchrun_trains_every_layout_like_one_process(
    ranks: int, built: BuiltImage, alone: dict[str, Any], tmp_path: Path
) -> None:
    check(by_torchrun(built, ranks, tmp_path), alone)


@pytest.mark.parametrize("ranks", [2, 4])
def test_srun_trains_every_layout_on_two_nodes_like_one_process(
    ranks: int, built: BuiltImage, slurm: Path, alone: dict[str, Any], tmp_path: Path
) -> None:
    argv, env = inside(
        built, tmp_path, ["python", *jobs(ranks, tmp_path)], Mount(str(WORKER), "/worker")
    )
    reach = {
        "APPTAINERENV_MASTER_ADDR": "127.0.0.1",
        "APPTAINERENV_MASTER_PORT": str(cluster.free_ports(1)[0]),
    }
    srun = ["srun", "--nodes=2", f"--ntasks-per-node={ranks // 2}", "--cpus-per-task=1",
            "--mpi=none", "--kill-on-bad-exit=1", "sh", "-c", START_RANK, "sh"]
    done = process.run(
        [*srun, *argv], env={**env, **reach, "SLURM_CONF": str(slurm / "slurm.conf")}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check(results(ranks, tmp_path), alone)
