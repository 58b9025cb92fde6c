"""Images for arm64 on a machine of amd64, whose kernel starts an emulator for their programs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import elfpages
import tinyapp
import twobuilds
from inside import TORCHRUN, run_inside
from jobplaces import write_program
from trimaran.architectures import Architecture
from trimaran.data import cache
from trimaran.data.contracts import load
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.launch.specification import Mount
from trimaran.provenance import size_limit
from trimaran.reporting import Silent

TINY = Path(__file__).parents[1] / "images/tiny/image.yaml"
TRAINED = ("resnet-imagenet-torch-cpu", "resnet-imagenet-torch-cuda13")
STEPS = 30
TRAIN = (
    f"-m resnet_imagenet train --data=/data --out=/out/run --model resnet20 --epochs 1 "
    f"--max-steps {STEPS} --base-lr 0.1 --warmup-epochs 0 --momentum 0.9 --log-every 1 "
    "--threads 1 --precision fp32 --eval-every 0 --batch-size-per-rank 16 --strategy ddp"
)
SAME = 1e-4
"""Largest relative difference between the losses of two architectures."""

SUPPORTED = [
    name for name in definition.names()
    if "arm64" in definition.chain(definition.load(name))[0].architectures
]
"""Names of all images of the checkout that exist for arm64."""

pytestmark = [
    pytest.mark.long, pytest.mark.trains, pytest.mark.engine("apptainer"),
    pytest.mark.engine("arm64"), pytest.mark.usefixtures("user_cache"),
    pytest.mark.timeout(3 * 3600),  # an image is built under emulation, the first time
]


def built(image: Image, architecture: Architecture) -> BuiltImage:
    """Return the image, which has passed its self-test."""
    return Apptainer().build(
        definition.on(image, architecture), base=None, offline=False, reporter=Silent())


def test_a_small_image_runs() -> None:
    image = built(definition.read(TINY), "arm64")
    assert Apptainer().inside(image, ["-c", "import os; print(os.uname().machine)"]) == "aarch64\n"


@pytest.mark.parametrize(
    "image", [definition.read(TINY), definition.load("tensorflow-cpu")],
    ids=lambda image: image.name)
def test_an_image_is_built_again_byte_by_byte(image: Image) -> None:
    built(image, "arm64")  # has its packages then
    first, second = twobuilds.digests(definition.on(image, "arm64"))
    assert first == second


@pytest.mark.parametrize("name", SUPPORTED)
def test_an_image_passes_its_self_test(name: str) -> None:
    """The image is built first, unless the cache has it; its size must not exceed its limit."""
    engine, image = Apptainer(), definition.on(definition.load(name), "arm64")
    existing = engine.find(image)
    if existing is None:
        existing = built(image, "arm64")
    else:
        engine.test(image, existing, Silent())
    size_limit.require(engine, image, existing)


@pytest.mark.parametrize("name", [one for one in SUPPORTED if definition.load(one).kind != "app"])
def test_kernels_with_pages_of_64_kib_can_load_all_programs(name: str) -> None:
    """Such kernels are usual on GH200; the emulator itself has pages of 4 KiB."""
    script = Path(elfpages.__file__).read_text()
    assert Apptainer().inside(built(definition.load(name), "arm64"), ["-c", script]) == ""


def test_a_bundle_for_arm64_runs_on_such_a_machine(
    trimaran: tinyapp.Trimaran, tmp_path: Path
) -> None:
    """The bundle is run with a stand-in for `uname` that prints `aarch64`.

    The emulator runs programs for arm64, but the host's own `uname` still prints `x86_64`.
    """
    words = ["bundle", tinyapp.RECIPE, "--arch", "arm64", "--with-data", "-o", str(tmp_path / "b")]
    refused = trimaran(*words)
    assert "[image-missing]" in refused.stderr
    assert f"trimaran build {tinyapp.APP_IMAGE} --arch arm64" in refused.stderr
    for words_of_step in (
        ["build", tinyapp.APP_IMAGE, "--arch", "arm64", "--engine", "apptainer"], words,
        ["unbundle", str(tmp_path / "b"), "--to", str(tmp_path / "bundle")],
    ):
        done = trimaran(*words_of_step)
        assert done.returncode == 0, done.stderr
    out = tmp_path / "run"
    script = ["sh", str(tmp_path / "bundle/run.sh"), "--out", str(out)]
    assert subprocess.run(script, check=False).returncode == 69
    assert not out.exists()
    write_program(tmp_path / "uname",
                  '#!/bin/sh\n[ "$*" = -m ] && echo aarch64 || exec /bin/uname "$@"\n')
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(script, env=env, check=True)
    record = json.loads((out / "run.json").read_text())
    assert (record["image"]["architecture"], record["host"]["architecture"]) == ("arm64", "aarch64")
    assert trimaran("report", str(out)).returncode == 0
    assert "aarch64" in (out / "report.html").read_text()


@pytest.mark.parametrize("name", TRAINED)
def test_two_ranks_have_the_losses_of_the_other_architecture(name: str, tmp_path: Path) -> None:
    own, other = (_losses(name, tmp_path / one, one) for one in ("amd64", "arm64"))
    assert len(own) == STEPS
    assert other == pytest.approx(own, rel=SAME)


def _losses(name: str, out: Path, architecture: Architecture) -> list[float]:
    """Train with two ranks in the image for `architecture`; return the loss of each step."""
    packed = cache.get(load("fashion-mnist"), offline=False, reporter=Silent())
    out.mkdir()
    image = built(definition.load(name), architecture)
    run_inside(image, out, [*TORCHRUN, *TRAIN.split()], Mount(str(packed), "/data"))
    lines = map(json.loads, (out / "run/metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["key"] == "train_loss"]
