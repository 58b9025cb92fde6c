"""CheXNet's transfer on two ranks inside the image: the same losses as one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inside import HOROVODRUN, MPIRUN, run_inside
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

STEPS = 6
WORDS = (
    f"--synthetic --model small --size 32 --max-steps {STEPS} --log-every 1 --threads 1"
    " --precision fp32 --optimizer sgd --base-lr 0.01 --eval-every 0"
)

pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]


def train(out: Path, launcher: list[str], *more: str) -> list[float]:
    """Train in the image; return what each step lost."""
    built = Apptainer().build(
        definition.load("chexnet-tensorflow-cpu"), base=None, offline=False, reporter=Silent()
    )
    out.mkdir()
    run_inside(built, out, [
        *launcher, "-m", "chexnet", "train", "--out=/out/run", *WORDS.split(), *more,
    ])
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    return [one["value"] for one in lines if one["key"] == "train_loss"]


def test_two_ranks_have_the_losses_of_one(tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", ["python"], "--batch-size-per-rank=16", "--accumulation=2")
    assert len(alone) == STEPS
    for name, launcher in [("mpirun", MPIRUN), ("horovodrun", HOROVODRUN)]:
        found = train(tmp_path / name, launcher, "--strategy=horovod", "--batch-size-per-rank=8")
        assert found == pytest.approx(alone, rel=1e-4), name
