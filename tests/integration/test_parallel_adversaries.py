"""Compare the losses of FutureGAN on two ranks inside the image with the losses of one process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inside import MPIRUN, TORCHRUN, run_inside
from trimaran.data.packing import image_folders, packer
from trimaran.data.packing.plan import Options
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

CLIPS, STEPS = 9, 12
WORDS = (
    "--past 3 --future 3 --size 16 --first-size 8 --width 8 --transition-epochs 1 "
    f"--stabilization-epochs 1 --max-steps {STEPS} --log-every 1 --threads 1 --eval-every 0 "
    "--precision fp32 --stddev-group 2 --base-lr 1e-4 --reconstruction 10"
)
KEYS = ("critic_loss", "generator_loss", "gradient_penalty", "wasserstein")

pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return packed sequences of six frames of noise; each sequence is one clip."""
    root, draw = tmp_path_factory.mktemp("frames"), np.random.default_rng(0)
    for split, count in (("train", CLIPS), ("val", 2)):
        for number in range(count):
            folder = root / split / f"sequence-{number}"
            folder.mkdir(parents=True)
            for at in range(6):
                noise = draw.integers(0, 256, (16, 16, 3), np.uint8)
                Image.fromarray(noise).save(folder / f"{at}.png")
    out = tmp_path_factory.mktemp("packed") / "noise"
    found = image_folders.listing_of(
        root, out, labels=None, in_sequences=True, untrained=False, workers=1, reporter=Silent()
    )
    packer.pack(found, out, Options("noise", "webdataset"), workers=1, skip_bad=False,
                reporter=Silent())
    return out


def train(out: Path, packed: Path, launcher: list[str], *more: str) -> dict[str, list[float]]:
    """Train in the image; return metric key -> losses of all steps."""
    built = Apptainer().build(
        definition.load("futuregan-torch-cpu"), base=None, offline=False, reporter=Silent()
    )
    out.mkdir()
    words = ["-m", "futuregan", "train", "--data=/data", "--out=/out/run", *WORDS.split(), *more]
    run_inside(built, out, [*launcher, *words], Mount(str(packed), "/data"))
    lines = [json.loads(line) for line in (out / "run/metrics.jsonl").read_text().splitlines()]
    assert {one["value"] for one in lines if one["key"] == "resolution"} == {8, 16}
    return {key: [one["value"] for one in lines if one["key"] == key] for key in KEYS}


@pytest.mark.parametrize(("whole", "share"), [
    pytest.param(["--batch-size-per-rank=4", "--micro-batch=2"], "2", marks=pytest.mark.long),
    (["--batch-size-per-rank=2"], "1"),  # a group is of the clips of both ranks
], ids=["two clips on each", "one clip on each"])
def test_two_ranks_have_the_losses_of_one(
    whole: list[str], share: str, packed: Path, tmp_path: Path
) -> None:
    """A training on two ranks has the losses of a training with one process.

    In this training the network grows, and in the last batches one rank has fewer clips.
    """
    alone = train(tmp_path / "alone", packed, ["python"], *whole)
    for strategy, launcher in [("horovod", MPIRUN), ("ddp", TORCHRUN)]:
        found = train(
            tmp_path / strategy, packed, launcher, f"--strategy={strategy}",
            f"--batch-size-per-rank={share}",
        )
        for key in KEYS:
            assert 8 <= len(found[key]) <= STEPS
            assert found[key] == pytest.approx(alone[key], rel=1e-4, abs=1e-5), (strategy, key)
