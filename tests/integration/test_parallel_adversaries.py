"""FutureGAN's two networks on two ranks inside the image: the same losses as one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inside import MPIRUN, TORCHRUN, run_inside
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.reporting import Silent

STEPS = 8
WORDS = (
    f"--synthetic --size 16 --first-size 16 --width 8 --max-steps {STEPS} --log-every 1 --threads 1"
    " --precision fp32 --stddev-group 2 --base-lr 1e-4 --reconstruction 10"
)
KEYS = ("critic_loss", "generator_loss", "gradient_penalty", "wasserstein")

pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]


def train(out: Path, launcher: list[str], *more: str) -> dict[str, list[float]]:
    """Train in the image; return what each step lost."""
    built = Apptainer().build(
        definition.load("futuregan-torch-cpu"), base=None, offline=False, reporter=Silent()
    )
    out.mkdir()
    run_inside(built, out, [
        *launcher, "-m", "futuregan", "train", "--out=/out/run", *WORDS.split(), *more,
    ])
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    return {key: [one["value"] for one in lines if one["key"] == key] for key in KEYS}


def test_two_ranks_have_the_losses_of_one(tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", ["python"], "--batch-size-per-rank=4", "--micro-batch=2")
    for strategy, launcher in [("horovod", MPIRUN), ("ddp", TORCHRUN)]:
        found = train(
            tmp_path / strategy, launcher, f"--strategy={strategy}", "--batch-size-per-rank=2"
        )
        for key in KEYS:
            assert len(found[key]) == STEPS
            assert found[key] == pytest.approx(alone[key], rel=1e-4, abs=1e-5), (strategy, key)
