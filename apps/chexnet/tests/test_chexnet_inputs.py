"""Tests of batches: each image occurs once per epoch, for any number of ranks, from any step."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from written_findings import image, pack

from chexnet import crops, inputs
from chexnet.inputs import Loader
from chexnet.settings import TrainSettings
from oddpictures import BAD, GOOD
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused


def loader(folder: Path, rank: int = 0, ranks: int = 1, batch: int = 6, **more: object) -> Loader:
    records = inputs.open_images(folder).records("train")
    options = {"size": 24, "channels": 1, "augment": True, "decoders": 2, **more}
    return Loader(
        records, plan=Plan(len(records), batch, 17, training=True),
        strategy=Strategy(Ranks("mpirun", rank, ranks, rank, ranks)), **options,  # type: ignore[arg-type]
    )


def seen(own: Loader, epoch: int = 0, first: int = 0) -> list[tuple[np.ndarray, np.ndarray, int]]:
    return [(one.images.numpy(), one.labels.numpy(), one.count) for one in own.epoch(epoch, first)]


def test_an_epoch_has_each_image_once(findings: Path) -> None:
    batches = seen(loader(findings, augment=False, size=32))
    assert [count for *_, count in batches] == [6, 6, 6, 6, 3]
    found = np.concatenate([images for images, *_ in batches])
    assert len({one.tobytes() for one in found}) == 27
    assert found.dtype == np.uint8
    exact = inputs.open_images(findings).records("train")
    labels = np.concatenate([labels for _, labels, _ in batches])
    order = Plan(27, 6, 17, training=True).order(0)
    np.testing.assert_array_equal(labels, np.stack([exact.vector(int(at)) for at in order]))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_batches_of_one(ranks: int, findings: Path) -> None:
    batch = 12
    whole = seen(loader(findings, batch=batch))
    parts = [seen(loader(findings, rank, ranks, batch)) for rank in range(ranks)]
    for at, (images, labels, count) in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[at][0] for part in parts]), images)
        np.testing.assert_array_equal(np.concatenate([part[at][1] for part in parts]), labels)
        assert {part[at][2] for part in parts} == {count}


def test_a_rank_may_have_no_part_of_the_last_batch(findings: Path) -> None:
    images, labels, count = seen(loader(findings, 5, 6, 24))[-1]
    assert (images.shape, labels.shape, count) == ((0, 24, 24, 1), (0, 2), 3)


def test_it_goes_on_anywhere_and_differs_in_each_epoch(findings: Path) -> None:
    own = loader(findings)
    first, again, later = seen(own), seen(own, 0, 2), seen(own, 1)
    for one, other in zip(first[2:], again, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert any((one[0] != other[0]).any() for one, other in zip(first, later, strict=True))


def test_augmentation_mirrors_shifts_and_scales(findings: Path) -> None:
    for draws in ((0.1, 0.0, 0.5, 0.5), (0.9, 0.0, 0.0, 1.0), (0.9, 1.0, 0.3, 0.3)):
        top, left, bottom, right = crops.random_window(np.float32(draws)).numpy()
        side = 0.85 + 0.15 * draws[1]
        assert bottom - top == pytest.approx(side)
        assert right - left == pytest.approx(-side if draws[0] < 0.5 else side)
        assert min(top, left, right) >= 0
        assert max(bottom, left, right) <= 1 + 1e-6


def test_ten_parts_of_an_image_are_its_corners_its_centre_and_all_mirrored(findings: Path) -> None:
    records = inputs.open_images(findings).records("val")
    own = Loader(records, size=28, channels=3, augment=False, decoders=1,
                 plan=Plan(len(records), 5, 0, training=False), strategy=Strategy(),
                 windows=crops.ten_crops(28 / 32))
    found = next(own.epoch(0)).images.numpy()
    assert found.shape == (5, 10, 28, 28, 3)
    mirrored = found[:, :5, :, ::-1].astype(int)
    assert np.abs(found[:, 5:] - mirrored).max() <= 1  # halves are rounded either way


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    images = [image(seed) for seed in range(9)]
    images[4] = images[4][0], images[4][1][:60]
    folder = pack(tmp_path / "cut", {"train": images, "val": images[:2]})
    with refused(DataError, "image-undecodable", "train-00000.tfrecord"):
        seen(loader(folder, batch=3))


@pytest.mark.parametrize(("lost", "record"), [(20, 26), (500, None)])
def test_a_shard_cut_short_is_named_with_the_record(
    lost: int, record: int | None, findings: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(findings, folder)
    shard = folder / "train-00000.tfrecord"
    content = shard.read_bytes()[:-lost]
    shard.write_bytes(content)
    if record is None:  # the first one that ends beyond the end
        rows = (folder / "train-00000.idx").read_text().split("\n")
        ends = [sum(map(int, row.split())) for row in rows if row]
        record = next(at for at, end in enumerate(ends) if end > len(content))
    with refused(DataError, "data-damaged", "train-00000.tfrecord", f" record {record} "):
        seen(loader(folder))


def test_fewer_images_than_ranks_are_refused(findings: Path) -> None:
    with refused(DataError, "data-too-small", "27 images", "28 ranks"):
        loader(findings, 0, 28, 28)


def test_synthetic_images_have_as_many_findings_as_chest_x_rays(tmp_path: Path) -> None:
    settings = TrainSettings(synthetic=True, out=tmp_path, size=32, batch_size_per_rank=4)
    data = inputs.open_inputs(settings, Strategy())
    assert len(data.findings) == 14
    batch = next(data.train.epoch(0))
    assert batch.images.shape == (4, 32, 32, 3)
    assert batch.labels.shape == (4, 14)


def test_packed_pictures_are_seen_as_by_the_packer(tmp_path: Path) -> None:
    """Unusual images that an older packer has stored are decoded to the expected pixels.

    They have EXIF tags, or TensorFlow cannot decode them in grey.
    """
    cases = [case for case in GOOD.values() if case.pixels.shape[:2] == (24, 32)]
    packed = [([at % 2], case.content) for at, case in enumerate(cases)]
    folder = pack(tmp_path / "odd", {"train": packed, "val": packed[:2]})
    records = inputs.open_images(folder).records("train")
    for channels in (1, 3):
        own = Loader(records, size=24, channels=channels, augment=False, decoders=1,
                     plan=Plan(len(records), len(records), 0, training=False),
                     strategy=Strategy())
        found = next(own.epoch(0)).images.numpy()
        for seen_one, case in zip(found, cases, strict=True):
            plain = Image.fromarray(case.pixels).convert("RGB")
            grey = np.asarray(plain.convert("L" if channels == 1 else "RGB"))
            whole = np.float32([crops.WHOLE])
            wanted = crops.crop_and_resize(grey.reshape(24, 32, channels), whole, 24)
            wanted = wanted[0].numpy().astype(int)
            assert np.abs(seen_one.astype(int) - wanted).max() <= case.near + 12


def test_a_damaged_end_of_a_packed_picture_is_named(tmp_path: Path) -> None:
    images = [([0], BAD["png without IEND"].content)] * 3
    folder = pack(tmp_path / "bad", {"train": images, "val": images})
    with refused(DataError, "image-undecodable", "train-00000.tfrecord", "IEND"):
        seen(loader(folder, batch=3))
