"""Verification of packed data: every fault is reported with shard and record."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import photos
from packings import faults, pack
from shards import formats
from shards.description import DATASET
from shards.formats.records import Record
from shards.kinds import ImageFormat, Kind


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photos.folder(tmp_path / "photos")


def refused_in(name: str, real: Callable[[Path], bool]) -> Callable[[Path], bool]:
    """Return `real`, wrapped to raise PermissionError for paths that contain `name`."""
    def asked(path: Path) -> bool:
        if name in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    return asked


@pytest.fixture
def out(source: Path, tmp_path: Path) -> Path:
    pack(source, tmp_path / "out", format="tfrecord", samples=7)
    return tmp_path / "out"


def test_all_faults_of_all_shards_are_found(out: Path) -> None:
    first, second = out / "train-00000.tfrecord", out / "train-00001.tfrecord"
    content = bytearray(first.read_bytes())
    content[100] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-100])
    (out / "val-00000.idx").unlink()
    found = faults(out)
    for part in (
        f"{first} is damaged: SHA-256", f"{first}: record 0 is damaged: its CRC32C",
        f"{second} has", f"{second} is cut off or damaged in record 6",
        f"{second} has 6 records, 7 are listed", f"{out / 'val-00000.idx'} is missing",
    ):
        assert any(part in fault for fault in found), part


def test_wrong_images_and_classes_under_a_right_hash_are_found(out: Path) -> None:
    text = (out / DATASET).read_text()
    document = json.loads(text) | {"classes": ["cat"]}
    (out / DATASET).write_text(json.dumps(document))
    found = faults(out)
    assert {fault.split(":")[0] for fault in found} == {
        str(out / f"{name}.tfrecord") for name in ("train-00000", "train-00001", "val-00000")
    }
    assert all("has no class from 0 to 0" in fault for fault in found)
    records = [Record(at, f"val/{at}.jpg", (0,), (b"no image",), "jpg") for at in range(5)]
    new = formats.write_shard("tfrecord", out, "val-00000", Kind(), records)
    document = json.loads(text)
    document["splits"]["val"]["shards"] = [asdict(new)]
    (out / DATASET).write_text(json.dumps(document))
    assert faults(out) == [
        f"{out / 'val-00000.tfrecord'}: record 0 (val/0.jpg) is not a JPEG, PNG or DICOM file"
        " (it begins with b'no image'), and the 4 after it too"
    ]


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("splits.train.samples", 999, "split train: its shards do not add up to 999 samples"),
        ("splits.train.shards.0.index", None, "tfrecord is listed without its index"),
        ("splits.train.shards.0.file", "train-00001.tfrecord",
         "train-00001.tfrecord is listed 2 times"),
        ("splits", {}, "no split is listed"),
        ("image.mean", [], "image.mean has 0 numbers for 3 channels"),
        ("image.std", [0.5], "image.std has 1 numbers for 3 channels"),
        ("image.encoding", "png", "image.encoding: png"),
    ],
)
def test_a_description_that_cannot_be_is_found(
    out: Path, key: str, value: object, fault: str
) -> None:
    document = json.loads((out / DATASET).read_text())
    place = document
    *path, last = [int(part) if part.isdigit() else part for part in key.split(".")]
    for part in path:
        place = place[part]
    place[last] = value
    (out / DATASET).write_text(json.dumps(document))
    found = faults(out)
    assert any(fault in one for one in found), found
    assert len(found) == len(set(found))


def test_one_png_among_jpegs_is_no_fault(source: Path, tmp_path: Path) -> None:
    """A PNG file with the name of a JPEG is no fault, because ImageNet has such a file.

    Decoders detect the format from the first bytes.
    """
    (source / "train/cat/one.jpg").write_bytes(photos.png(1))
    pack(source, tmp_path / "other", samples=20)
    assert faults(tmp_path / "other") == []


def test_a_file_that_cannot_be_read_does_not_hide_the_faults_of_others(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = out / "train-00000.tfrecord", out / "train-00001.tfrecord"
    broken.unlink()
    broken.symlink_to("/proc/self/mem")  # it has no size, and reading it is an I/O error
    document = json.loads((out / DATASET).read_text())
    document["splits"]["train"]["shards"][0]["bytes"] = 0
    (out / DATASET).write_text(json.dumps(document))
    other.write_bytes(other.read_bytes()[:-1] + b"?")
    found = faults(out)
    assert f"{broken} cannot be read: Input/output error" in found
    assert any(f"{other} is damaged" in fault for fault in found)
    monkeypatch.setattr(Path, "is_file", refused_in("val-00000", Path.is_file))
    found = faults(out)
    assert f"{out / 'val-00000.tfrecord'} cannot be read: Permission denied" in found
    assert not any("val-00000.tfrecord is missing" in fault for fault in found)
    assert any(f"{other} is damaged" in fault for fault in found)


@pytest.mark.parametrize("name", ["lmdb", "hdf5"])
def test_damaged_shards_of_libraries_are_found(
    source: Path, tmp_path: Path, name: ImageFormat
) -> None:
    dataset = pack(source, tmp_path / "other", format=name)
    path = tmp_path / "other" / dataset.splits["val"].shards[0].file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert any(f"{path} has" in fault for fault in faults(tmp_path / "other"))
    path.write_bytes(content[:-9] + b"?" + content[-8:])
    assert any(f"{path} is damaged" in fault for fault in faults(tmp_path / "other"))
