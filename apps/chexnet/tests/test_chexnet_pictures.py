"""Tests of the pixels that a network gets: order, augmentation, windows, scaling."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import second_pictures as second
import tensorflow as tf
from packed_images import png
from written_findings import pack

from chexnet import crops, inputs
from chexnet.inputs import Synthetic
from chexnet.settings import PretrainSettings, TrainSettings
from trainkit.strategy import Strategy

SEED, BATCH, SIZE = 31, 4, 24


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[np.ndarray]]]:
    """Return a packed data set of noise in two sizes, and the images of each split as arrays."""
    draw, made = np.random.default_rng(0), {}
    for split, count in (("train", 9), ("val", 6), ("test", 5)):
        sizes = [(40, 30) if at % 2 else (30, 44) for at in range(count)]
        made[split] = [draw.integers(0, 256, size).astype(np.uint8) for size in sizes]
    folder = pack(tmp_path_factory.mktemp("pictures") / "noise", {
        split: [(((0,), (1,), (), (0, 1))[at % 4], png(one)) for at, one in enumerate(images)]
        for split, images in made.items()
    })
    return folder, {split: [one[..., None] for one in images] for split, images in made.items()}


LABELS = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])


def opened(folder: Path, settings: type[TrainSettings] = TrainSettings, **more: object) -> (
    inputs.Inputs
):
    return inputs.open_inputs(settings(
        data=folder, size=SIZE, channels="1", batch_size_per_rank=BATCH, seed=SEED,
        **more,  # type: ignore[arg-type]
    ), Strategy())


@pytest.mark.parametrize("settings", [TrainSettings, PretrainSettings])
def test_a_training_sees_the_drawn_part_of_each_image_in_the_drawn_order(
    settings: type[TrainSettings], pictures: tuple[Path, dict[str, list[np.ndarray]]]
) -> None:
    """Order and windows differ in each epoch, and depend only on seed, epoch and step."""
    folder, made = pictures
    train = opened(folder, settings).train
    for epoch in range(2):
        order = np.random.default_rng((SEED, epoch)).permutation(9)
        for step, batch in enumerate(train.epoch(epoch)):
            own = order[step * BATCH : (step + 1) * BATCH]
            draws = np.random.default_rng((SEED, epoch, step)).random(
                (BATCH, 4 if settings is TrainSettings else 23), np.float32
            )
            boxes = [
                second.shifted(one) if settings is TrainSettings
                else second.some_part(one, *made["train"][at].shape[:2])
                for one, at in zip(draws, own, strict=False)
            ]
            expected = [second.cut_out(made["train"][at], box, SIZE)
                        for at, box in zip(own, boxes, strict=True)]
            second.same(batch.images.numpy(), np.stack(expected))
            np.testing.assert_array_equal(batch.labels.numpy(), LABELS[own % 4])
            assert batch.count == len(own)


def test_all_held_out_images_are_seen_whole_once_in_their_order(
    pictures: tuple[Path, dict[str, list[np.ndarray]]]
) -> None:
    folder, made = pictures
    found = opened(folder, test=True)
    assert found.test is not None
    for split, loader in (("val", found.evaluation), ("test", found.test)):
        for epoch in range(2):
            batches = list(loader.epoch(epoch))
            expected = [second.cut_out(one, (0, 0, 1, 1), SIZE) for one in made[split]]
            second.same(np.concatenate([one.images.numpy() for one in batches]), np.stack(expected))
            labels = np.concatenate([one.labels.numpy() for one in batches])
            np.testing.assert_array_equal(labels, LABELS[np.arange(len(expected)) % 4])
    np.testing.assert_array_equal(found.train.vectors(), LABELS[np.arange(9) % 4])
    assert opened(folder).test is None
    assert opened(folder).packed is None


def test_the_width_and_height_that_images_were_packed_with_are_known(tmp_path: Path) -> None:
    images = [((0,), png(np.zeros((40, 30), np.uint8)))]
    folder = pack(tmp_path / "sized", {"train": images, "val": images})
    about = json.loads((folder / "dataset.json").read_text())
    about["image"] |= {"height": 40, "width": 30}
    (folder / "dataset.json").write_text(json.dumps(about))
    assert opened(folder).packed == (30, 40)


def test_without_augmentation_a_training_sees_whole_images(
    pictures: tuple[Path, dict[str, list[np.ndarray]]]
) -> None:
    folder, made = pictures
    batch = next(opened(folder, augment=False).train.epoch(0))
    order = np.random.default_rng((SEED, 0)).permutation(9)
    expected = [second.cut_out(made["train"][at], (0, 0, 1, 1), SIZE) for at in order[:BATCH]]
    second.same(batch.images.numpy(), np.stack(expected))


@pytest.mark.parametrize("shape", [(48, 64), (500, 400), (60, 600)])
def test_random_parts_are_those_of_torchvision(shape: tuple[int, int]) -> None:
    for draws in np.random.default_rng(1).random((25, 23), np.float32):
        found = crops.random_crop(draws, np.array(shape)).numpy()
        np.testing.assert_allclose(found, second.some_part(draws, *shape), atol=2e-5)


def test_ten_parts_are_224_of_256_pixels_in_each_corner_and_in_the_middle() -> None:
    np.testing.assert_allclose(crops.ten_crops(), second.ten_parts(), atol=1e-6)


def test_windows_are_scaled_between_four_neighbours_and_rounded() -> None:
    draw = np.random.default_rng(2)
    pixels = draw.integers(0, 256, (17, 23, 3)).astype(np.uint8)
    boxes = [(0.1, 0.2, 0.8, 0.9), (0, 1, 1, 0), (0.3, 0.3, 0.4, 0.5)]
    found = crops.crop_and_resize(tf.constant(pixels), tf.constant(boxes, tf.float32), 12).numpy()
    second.same(found, np.stack([second.cut_out(pixels, box, 12) for box in boxes]))


@pytest.mark.parametrize("side", [59, 117, 233, 245])
def test_a_white_image_has_no_black_line_at_its_end(side: int) -> None:
    """All windows of a white image are white.

    For these sizes, a rounding error could move the last line of pixels beyond the image.
    """
    white = tf.fill((side, side, 1), tf.constant(255, tf.uint8))
    boxes = tf.constant([crops.WHOLE, (0, 1, 1, 0), *crops.ten_crops()], tf.float32)
    assert crops.crop_and_resize(white, boxes, 224).numpy().min() == 255


def test_synthetic_findings_differ_from_image_to_image_and_seed_to_seed() -> None:
    one, other = Synthetic(32, 14, 1024, 1), Synthetic(32, 14, 1024, 2)
    labels = np.stack([one.vector(at) for at in range(len(one))])
    assert labels.shape == (1024, 14)
    assert 0.4 < labels.mean() < 0.6
    assert len(np.unique(labels, axis=0)) > 900
    assert bytes(one.encoded(0)) != bytes(other.encoded(0))
