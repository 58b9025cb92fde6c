"""Images for arm64 on a machine of amd64, whose kernel starts an emulator for their programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inside import TORCHRUN, run_inside
from trimaran.architectures import Architecture
from trimaran.data import cache
from trimaran.data.contracts import load
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

TINY = Path(__file__).parents[1] / "images/tiny/image.yaml"
IMAGE = "resnet-imagenet-torch-cpu"
STEPS = 30
TRAIN = (
    f"-m resnet_imagenet train --data=/data --out=/out/run --model resnet20 --epochs 1 "
    f"--max-steps {STEPS} --base-lr 0.1 --warmup-epochs 0 --momentum 0.9 --log-every 1 "
    "--threads 1 --precision fp32 --eval-every 0 --batch-size-per-rank 16 --strategy ddp"
)
SAME = 1e-4
"""Largest relative difference between the losses of two architectures."""

pytestmark = [
    pytest.mark.long, pytest.mark.trains, pytest.mark.engine("apptainer"),
    pytest.mark.engine("arm64"), pytest.mark.usefixtures("user_cache"),
    pytest.mark.timeout(3 * 3600),  # an image is built under emulation, the first time
]


def built(image: Image, architecture: Architecture) -> BuiltImage:
    """Return the image, which has passed its self-test."""
    return Apptainer().build(
        definition.on(image, architecture), base=None, offline=False, reporter=Silent())


def test_a_small_image_is_built_and_runs() -> None:
    image = built(definition.read(TINY), "arm64")
    assert Apptainer().inside(image, ["-c", "import os; print(os.uname().machine)"]) == "aarch64\n"


def test_an_image_is_built_again_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1577836800")
    image = definition.on(definition.read(TINY), "arm64")
    engine = Apptainer()
    with engine.again(image, base=None, reporter=Silent()) as first:
        digest = first.digest
    with engine.again(image, base=None, reporter=Silent()) as second:
        assert second.digest == digest


def test_two_ranks_have_the_losses_of_the_other_architecture(tmp_path: Path) -> None:
    own, other = (_losses(tmp_path / one, one) for one in ("amd64", "arm64"))
    assert len(own) == STEPS
    assert other == pytest.approx(own, rel=SAME)


def _losses(out: Path, architecture: Architecture) -> list[float]:
    """Train with two ranks in the image for `architecture`; return the loss of each step."""
    packed = cache.get(load("fashion-mnist"), offline=False, reporter=Silent())
    out.mkdir()
    image = built(definition.load(IMAGE), architecture)
    run_inside(image, out, [*TORCHRUN, *TRAIN.split()], Mount(str(packed), "/data"))
    lines = map(json.loads, (out / "run/metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == "train_loss"]
