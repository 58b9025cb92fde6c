"""Tests of reading X-rays: PNG with 8 and 16 bits, JPEG, and the variants of DICOM."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file

import oddpictures
import oddxrays
from chexnet import xray
from trainkit.exits import DataError
from trainkit.testing.refusals import refused

PICTURES = {**oddpictures.CASES, **oddpictures.OTHERS}


def dicom(path: Path, **more: object) -> Path:
    dataset = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    for key, value in more.items():
        setattr(dataset, key, value)
    dataset.save_as(path)
    return path


def test_dicom_is_shown_in_its_own_window_with_black_air(tmp_path: Path) -> None:
    found = np.asarray(xray.read(dicom(tmp_path / "a.dcm")), int)
    inverse = np.asarray(
        xray.read(dicom(tmp_path / "b.dcm", PhotometricInterpretation="MONOCHROME1")), int
    )
    assert found.shape == (128, 128)
    assert (found.min(), found.max()) == (0, 255)
    assert np.abs(found + inverse - 255).max() <= 1
    stored = pydicom.dcmread(tmp_path / "a.dcm").pixel_array.astype(float)
    assert np.corrcoef(found.ravel(), stored.ravel())[0, 1] > 0.99


def test_a_window_cuts_what_is_brighter(tmp_path: Path) -> None:
    narrow = dicom(tmp_path / "a.dcm", WindowCenter=40, WindowWidth=80)
    found = np.asarray(xray.read(narrow))
    assert (found == 255).mean() > (np.asarray(xray.read(dicom(tmp_path / "b.dcm"))) == 255).mean()


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert np.asarray(xray.read(tmp_path / "a.png")).tolist() == [[0, 0, 1], [128, 255, 255]]


def test_fewer_bits_than_the_file_has_are_refused(tmp_path: Path) -> None:
    """A 16-bit file with values of only 12 bits is refused: the image would be almost black."""
    file = tmp_path / "a.png"
    Image.fromarray(np.array([[0, 900], [2000, 4095]], np.uint16)).save(file)
    with refused(DataError, "image-undecodable", file, "16 bits", "4095"):
        xray.read(file)


def test_colours_become_grey(tmp_path: Path) -> None:
    Image.new("RGB", (4, 2), (90, 90, 90)).save(tmp_path / "a.jpg")
    assert np.asarray(xray.read(tmp_path / "a.jpg")).tolist() == [[90] * 4] * 2


def no_pixels(path: Path) -> None:
    dataset = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
    del dataset.PixelData
    dataset.save_as(path)


def cut(path: Path) -> None:
    dicom(path)
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.mark.parametrize(("write", "says"), [
    (lambda path: path.write_bytes(b"no picture" * 30), "it is not a JPEG, PNG"),
    (lambda path: path.write_bytes(b""), "it is not a JPEG, PNG"),
    (lambda path: path.mkdir(), "is not a file"),
    (no_pixels, "a DICOM file without pixels"),
    (cut, "its pixels, Explicit VR Little Endian, cannot be read"),
    (lambda path: dicom(path, WindowCenter=40, WindowWidth=0), "its WindowWidth is 0"),
    (lambda path: dicom(path, SamplesPerPixel=1, NumberOfFrames=2, Rows=64), "one grey image"),
])
def test_what_is_no_x_ray_is_named(write: object, says: str, tmp_path: Path) -> None:
    path = tmp_path / "a file.dcm"
    write(path)  # type: ignore[operator]
    with pytest.raises(DataError, match=says) as caught:
        xray.read(path)
    assert "a file.dcm" in str(caught.value)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("case", PICTURES.values(), ids=PICTURES)
def test_a_picture_is_read_by_the_rule_of_the_packer(
    case: oddpictures.Case, channels: int, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(case.content)
    if case.pixels is None:
        with pytest.raises(DataError, match=f"a .*{case.says}"):
            xray.read(tmp_path / "a", channels)
        return
    found = xray.read(tmp_path / "a", channels)
    grey = Image.fromarray(case.pixels).convert("RGB").convert("L" if channels == 1 else "RGB")
    assert not oddpictures.different(np.asarray(found), case._replace(pixels=np.asarray(grey)))


@pytest.mark.parametrize("case", oddxrays.CASES.values(), ids=oddxrays.CASES)
def test_a_dicom_file_is_read_by_the_rule_of_the_packer(
    case: oddxrays.Case, tmp_path: Path
) -> None:
    (tmp_path / "a.dcm").write_bytes(case.content)
    if case.pixels is None:
        with refused(DataError, "image-undecodable", tmp_path / "a.dcm") as caught:
            xray.read(tmp_path / "a.dcm")
        assert re.search(case.says, str(caught.value))
        return
    found = np.asarray(xray.read(tmp_path / "a.dcm"), int)
    assert np.abs(found - case.pixels).max() <= 1


def test_a_picture_too_large_for_its_maps_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xray, "MAX_PIXELS", 700)
    (tmp_path / "a.png").write_bytes(oddpictures.png())
    with refused(DataError, "image-unsuitable", "a.png", "32x24", " 700 "):
        xray.read(tmp_path / "a.png")
