"""Pack real chest X-rays, train on them, view them; 16 images are too few to test an accuracy."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import radiology
from inside import run_inside
from trimaran.cli import app
from trimaran.data.packing import pictures
from trimaran.engines.apptainer import Apptainer
from trimaran.images import definition
from trimaran.launch.specification import Mount
from trimaran.reporting import Silent

TRAINING = (
    "--model=mobilenetv2", "--size=96", "--channels=1", "--epochs=3", "--frozen-epochs=1",
    "--batch-size-per-rank=6", "--threads=1", "--precision=fp32", "--device=cpu",
)
STEPS = 6

pytestmark = [
    pytest.mark.trains,
    pytest.mark.engine("apptainer"),
    pytest.mark.timeout(1800),  # the image is built, the first time
    pytest.mark.usefixtures("user_cache"),
]


def trimaran(*words: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("xrays") / "xrays"


@pytest.mark.long
def test_x_rays_are_packed_learned_and_looked_at(folder: Path, tmp_path: Path) -> None:
    radiology.write(folder)
    images, packed, out = folder / "images", folder / "packed", tmp_path / "out"
    trimaran("data", "pack", images, "--labels", images / "labels.csv", "--format", "tfrecord",
             "--resize", "250x250", "-o", packed)
    assert "intact" in trimaran("data", "verify", packed)
    splits = json.loads((packed / "dataset.json").read_text())["splits"]
    assert {name: split["samples"] for name, split in splits.items()} == {"train": 12, "val": 4}

    image = Apptainer().build(
        definition.load("chexnet-tensorflow-cpu"), base=None, offline=False, reporter=Silent()
    )
    out.mkdir()

    def chexnet(*words: str) -> str:
        return run_inside(image, out, ["python", "-m", "chexnet", *words], Mount(str(folder), "/x"))

    weights = "/x/mobilenet_v2-b0353104.pth"
    chexnet("train", "--data=/x/packed", "--out=/out/run", f"--initial={weights}", *TRAINING)
    assert json.loads((out / "run/result.json").read_text())["steps"] == STEPS
    scores = json.loads(chexnet("evaluate", "--data=/x/packed", "--out=/out/run", "--json",
                                "--draws=50", "--ten-crop", "--plot=/out/roc.png"))
    assert (scores["images"], scores["findings"]["Pneumonia"]["positive"]) == (4, 2)
    jpeg = max((images / "val").glob("person*"))
    said = json.loads(chexnet(
        "predict", "--out=/out/run", "--data", "/x/RG1_UNCR.dcm", f"/x/images/val/{jpeg.name}",
        "--to=/out/maps.png", "--json",
    ))
    dicom, other = said["images"]
    assert (dicom["width"], dicom["height"]) == (1841, 1955)
    assert np.array(other["findings"]["Pneumonia"]["map"]).shape == (3, 3)
    for name in ("maps.png", "roc.png"):
        with Image.open(out / name) as drawn:
            assert min(drawn.size) > 300


def test_the_dicom_file_of_a_scanner_is_packed_the_air_black(folder: Path) -> None:
    """Air is black in a packed X-ray, although the lowest value of its file is white (MONOCHROME1).

    The DICOM file stores 15 bits per pixel.
    """
    if not folder.exists():
        radiology.write(folder)
    content = pictures.scaled((folder / "RG1_UNCR.dcm").read_bytes(), (250, 250), 95)
    with Image.open(io.BytesIO(content)) as image:
        assert (image.mode, image.size) == ("L", (250, 250))
        values = np.asarray(image, float)
    assert values[:8, :8].mean() < 90  # beside the shoulder
    assert values[90:150, 110:135].mean() > 180  # the spine and the heart
