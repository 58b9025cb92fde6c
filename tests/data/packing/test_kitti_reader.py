"""A small copy of KITTI's zip: listed without unpacking, counted, packed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import photos
from refusals import refused
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.packing.kitti_reader import Kitti
from trimaran.reporting import Silent

ZIP = "data_tracking_image_2.zip"
COMMITTED = Path(__file__).parents[3] / "recipes/data/kitti-tracking.yaml"


@pytest.fixture
def contract(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Kitti:
    """Return the contract with the counts of the small copy."""
    monkeypatch.setattr("trimaran.pool.cores", lambda: 1)
    text = COMMITTED.read_text().replace("samples: 21, frames: 8008", "samples: 2, frames: 5")
    target = checkout / "recipes/data/kitti-tracking.yaml"
    target.write_text(text.replace("samples: 29", "samples: 1"))
    found = contracts.load("kitti-tracking")
    assert isinstance(found, Kitti)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "kitti"
    folder.mkdir()
    with zipfile.ZipFile(folder / ZIP, "w") as archive:
        for sequence, count in (("training/image_02/0000", 3), ("training/image_02/0001", 2),
                                ("testing/image_02/0000", 2)):
            for at in range(count):
                archive.writestr(f"{sequence}/{at:06}.png", photos.png(at, (30, 10)))
        archive.writestr("training/image_02/readme.txt", "x")
    return folder


def test_the_committed_contract_explains(contract: Kitti) -> None:
    with refused("licence-required", "kitti") as caught:
        cache.get(contract, offline=False, reporter=Silent())
    assert ZIP in (caught.value.hint or "")


def test_sequences_are_packed_to_the_size_of_the_contract(contract: Kitti, source: Path) -> None:
    folder = cache.get(contract, offline=True, reporter=Silent(), source=source)
    dataset = dataset_json.read(folder)
    assert (dataset.image.width, dataset.image.height) == (128, 128)
    counts = {name: split.samples for name, split in dataset.splits.items()}
    assert counts == {"train": 2, "test": 1}
    assert cache.verify(contract, reporter=Silent(), workers=1) == []


def test_a_zip_that_lacks_frames_or_is_damaged_is_refused(contract: Kitti, source: Path) -> None:
    path = source / ZIP
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with refused("data-damaged", path):
        cache.get(contract, offline=True, reporter=Silent(), source=source)
    begin = photos.png(1, (30, 10))[40:60]
    path.write_bytes(content.replace(begin, bytes(len(begin))))
    with refused("data-damaged", path):
        cache.get(contract, offline=True, reporter=Silent(), source=source)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("training/image_02/0000/000000.png", photos.png(0))
    with refused("data-mismatch", "training/image_02", 1, 5):
        cache.get(contract, offline=True, reporter=Silent(), source=source)
