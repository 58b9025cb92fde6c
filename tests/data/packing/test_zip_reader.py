"""Images in a zip file: the folder gives the label, and a hash of the image file the split."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import photos
from refusals import refused
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.packing.zip_reader import Zipped
from trimaran.reporting import Silent

COMMITTED = Path(__file__).parents[3] / "recipes/data/brain-mri.yaml"
ZIP = "small-1.whl"


def split_of(content: bytes) -> str:
    return "train" if int(hashlib.sha256(content).hexdigest(), 16) % 100 < 80 else "val"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / ZIP
    with zipfile.ZipFile(path, "w") as archive:
        for at in range(40):
            archive.writestr(f"p/{'yes' if at % 3 else 'no'}/{at}.jpg", photos.jpeg(at, (40, 30)))
        archive.writestr("p/yes/double.jpg", photos.jpeg(1, (40, 30)))
        archive.writestr("p/yes/readme.txt", "x")
        archive.writestr("p/other/1.jpg", photos.jpeg(1, (40, 30)))
    return path


def described(checkout: Path, path: Path, **changes: Any) -> Zipped:
    """Write a data contract that describes the zip file at `path`, and return it as loaded.

    `changes` replace or add top-level keys of the contract.
    """
    with zipfile.ZipFile(path) as archive:
        splits = [split_of(archive.read(name)) for name in archive.namelist()
                  if name.startswith(("p/yes", "p/no")) and name.endswith(".jpg")]
    about = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size": path.stat().st_size}
    content = yaml.safe_load(COMMITTED.read_text()) | {
        "name": "small", "folders": {"p/no": [], "p/yes": ["tumour"]}, "files": {ZIP: about},
        "sources": [{"kind": "url", "base": f"file://{path.parent}/",
                     "files": {ZIP: {"path": ZIP, **about}}}],
        "splits": {"train": {"samples": splits.count("train"), "percent": [0, 80]},
                   "val": {"samples": splits.count("val"), "percent": [80, 100]}},
        "packing": {"format": "tfrecord", "resize": [16, 16], "quality": 90}, **changes,
    }
    content.pop("packed", None)
    (checkout / "recipes/data/small.yaml").write_text(yaml.safe_dump(content))
    found = contracts.load("small")
    assert isinstance(found, Zipped)
    return found


def test_a_folder_says_what_its_images_show(
    checkout: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.pool.cores", lambda: 1)
    contract = described(checkout, written)
    folder = cache.get(contract, offline=False, reporter=Silent())
    dataset = dataset_json.read(folder)
    assert (dataset.labels, dataset.classes) == ("multi", ["tumour"])
    assert dataset.splits["train"].samples + dataset.splits["val"].samples == 41
    assert cache.verify(contract, reporter=Silent(), workers=1) == []


def test_equal_images_are_never_in_two_splits(checkout: Path, written: Path) -> None:
    listed = described(checkout, written).listing(written.parent, written.parent, Silent())
    with zipfile.ZipFile(written) as archive:
        for split, samples in listed.splits.items():
            for sample in samples:
                assert split_of(archive.read(sample.frames[0])) == split
                assert sample.labels == ((0,) if "/yes/" in sample.name else ())
    assert listed.ignored == [f"{ZIP}: p/yes/readme.txt"]


def test_another_number_of_images_is_refused(checkout: Path, written: Path) -> None:
    splits = {"train": {"samples": 7, "percent": [0, 80]},
              "val": {"samples": 7, "percent": [80, 100]}}
    contract = described(checkout, written, splits=splits)
    with refused("data-mismatch", "split train", 7):
        contract.listing(written.parent, written.parent, Silent())


def test_a_zip_that_is_none_is_refused(checkout: Path, written: Path) -> None:
    contract = described(checkout, written)
    written.write_bytes(b"x" * 100)
    with refused("data-damaged", written):
        contract.listing(written.parent, written.parent, Silent())


@pytest.mark.parametrize(("changes", "fault"), [
    ({"folders": {"p/yes": ["tumor"]}}, "folders: tumor: not among the classes"),
    ({"splits": {"train": {"samples": 1, "percent": [0, 70]},
                 "val": {"samples": 1, "percent": [80, 100]}}}, "without gap or overlap"),
    ({"splits": {"train": {"samples": 1, "percent": [0, 120]}}}, "percent"),
])
def test_a_faulty_contract_is_named(
    changes: dict[str, Any], fault: str, checkout: Path, written: Path
) -> None:
    with refused("file-invalid", fault):
        described(checkout, written, **changes)
