"""X-rays in DICOM files are converted to 8 bits and packed as grey JPEGs.

Files without exactly one readable grey image are rejected.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file
from typer.testing import CliRunner

from shards import dicom
from trimaran import cli
from trimaran.data import dataset_json
from trimaran.data.packing import pictures
from trimaran.data.packing.pictures import BadImage


def xray(**more: object) -> bytes:
    """Return pydicom's file CT_small.dcm with changed attributes; None deletes an attribute."""
    dataset = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    for key, value in more.items():
        if value is None:
            delattr(dataset, key)
        else:
            setattr(dataset, key, value)
    out = io.BytesIO()
    dataset.save_as(out)
    return out.getvalue()


def test_the_lowest_value_is_white_where_it_says_so() -> None:
    one = np.asarray(dicom.picture(xray()), int)
    other = np.asarray(dicom.picture(xray(PhotometricInterpretation="MONOCHROME1")), int)
    assert (one.min(), one.max()) == (0, 255)
    assert np.abs(one + other - 255).max() <= 1


@pytest.mark.parametrize("to", [64, (50, 40), 128])
def test_it_becomes_a_grey_jpeg(to: pictures.Resize) -> None:
    with Image.open(io.BytesIO(pictures.scaled(xray(), to, 90))) as found:
        assert (found.format, found.mode) == ("JPEG", "L")
        assert found.size == ((to, to) if isinstance(to, int) else to)


@pytest.mark.parametrize(("content", "says"), [
    (xray(PixelData=None), "without pixels"),
    (xray()[:20_000], "cannot be read"),
    (xray(NumberOfFrames=2, Rows=64), "one grey image"),
    (bytes(128) + b"DICM", "cannot be"),
])
def test_what_has_no_picture_is_named(content: bytes, says: str) -> None:
    with pytest.raises(BadImage, match=says):
        pictures.checked(content)


def test_a_folder_of_them_is_packed(tmp_path: Path) -> None:
    for at in range(3):
        path = tmp_path / f"photos/train/{at % 2}/{at}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(xray(WindowCenter=at, WindowWidth=99))
    words = ["data", "pack", str(tmp_path / "photos"), "-o", str(tmp_path / "packed"), "--workers",
             "1"]
    done = CliRunner().invoke(cli.app, words)
    assert getattr(done.exception, "code", None) == "images-mixed"
    done = CliRunner().invoke(cli.app, [*words, "--resize", "32x32"])
    assert done.exit_code == 0, done.output
    found = dataset_json.read(tmp_path / "packed")
    assert (found.image.encoding, found.splits["train"].samples) == ("jpg", 3)
