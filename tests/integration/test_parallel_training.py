"""Compare the losses of ranks inside the image, for each launcher, with those of one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inside import HOROVODRUN, MPIRUN, TORCHRUN, run_inside
from trimaran import process
from trimaran.data import cache
from trimaran.data.contracts import load
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

IMAGE = "resnet-imagenet-torch-cpu"
STEPS = 12
WORDS = (
    f"--model resnet20 --epochs 1 --max-steps {STEPS} --base-lr 0.1 --warmup-epochs 0 "
    "--momentum 0.9 --log-every 1 --threads 1 --precision fp32 --eval-every 0"
)
pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def train(out: Path, launcher: list[str], *more: str) -> list[float]:
    """Train in the image; return the loss of each step."""
    engine, reporter = Apptainer(), Silent()
    built = engine.build(definition.load(IMAGE), base=None, offline=False, reporter=reporter)
    packed = cache.get(load("fashion-mnist"), offline=False, reporter=reporter)
    if (out / "run/result.json").exists():  # made for a test before this one
        return losses(out)
    out.mkdir()
    arguments = [*launcher, "-m", "resnet_imagenet", "train", "--data=/data", "--out=/out/run",
                 *WORDS.split(), *more]
    run_inside(built, out, arguments, Mount(str(packed), "/data"))
    return losses(out)


def losses(out: Path) -> list[float]:
    lines = map(json.loads, (out / "run/metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == "train_loss"]


@pytest.fixture
def alone(folder: Path) -> list[float]:
    """Return the losses of one process that divides each batch into two parts."""
    return train(folder / "alone", ["python"], "--accumulation=2", "--batch-size-per-rank=32")


@pytest.mark.parametrize(("strategy", "launcher"), [
    ("ddp", TORCHRUN), ("horovod", MPIRUN),
    pytest.param("ddp", MPIRUN, marks=pytest.mark.long),
    pytest.param("horovod", HOROVODRUN, marks=pytest.mark.long),
], ids=["ddp-torchrun", "horovod-mpirun", "ddp-mpirun", "horovod-horovodrun"])
def test_two_ranks_have_the_losses_of_one(
    strategy: str, launcher: list[str], alone: list[float], folder: Path,
    request: pytest.FixtureRequest,
) -> None:
    out = folder / request.node.callspec.id
    found = train(out, launcher, f"--strategy={strategy}", "--batch-size-per-rank=16")
    assert len(found) == STEPS
    assert found == pytest.approx(alone, rel=1e-5)


@pytest.mark.long
def test_horovod_halves_what_it_sends(alone: list[float], folder: Path) -> None:
    found = train(folder / "fp16", MPIRUN, "--strategy=horovod", "--compression=fp16",
                  "--batch-size-per-rank=16")
    assert found != alone
    assert found == pytest.approx(alone, rel=1e-2)


@pytest.mark.engine("mpich")
@pytest.mark.parametrize("strategy", ["horovod", pytest.param("ddp", marks=pytest.mark.long)])
def test_ranks_of_the_hosts_mpich_train_together_or_not_at_all(strategy: str, folder: Path) -> None:
    """Ranks that the host's MPICH starts train together with DDP; with Horovod, they are refused.

    MPICH cannot connect the ranks of Open MPI in the image; Horovod needs MPI, DDP does not.
    """
    apptainer = Apptainer()
    built = apptainer.build(definition.load(IMAGE), base=None, offline=False, reporter=Silent())
    packed = cache.get(load("fashion-mnist"), offline=False, reporter=Silent())
    out = folder / f"mpich-{strategy}"
    out.mkdir()
    binds = ["--bind", f"{packed}:/data:ro", "--bind", f"{out}:/out"]
    done = process.run([
        "mpirun.mpich", "-n", "2", apptainer.executable, "exec", *binds, built.reference, "python",
        "-m", "resnet_imagenet", "train", "--data=/data", "--out=/out/run", *WORDS.split(),
        "--batch-size-per-rank=16", f"--strategy={strategy}",
    ])
    if strategy == "ddp":
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(losses(out)) == STEPS
        assert f"step {STEPS}/{STEPS}" in done.stdout
        return
    assert done.returncode == 2
    assert "[ranks-unconnected]" in done.stderr
    assert "MPICH started 2 " in done.stderr
    assert "Horovod sees 1;" in done.stderr
    assert "--strategy ddp" in done.stderr
    assert not (out / "run").exists()
