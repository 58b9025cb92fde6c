"""Tests of the windows of a photograph: random windows for training, the centre for evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from packed_images import png
from written_findings import pack

from chexnet import crops, inputs
from chexnet.inputs import Loader
from chexnet.settings import PretrainSettings, TrainSettings
from trainkit.data.order import Plan
from trainkit.strategy import Strategy

SHAPES = [(480, 640), (640, 480), (500, 500), (60, 600)]


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, crops.DRAWS["random"]), np.float32)


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_random_parts_lie_inside_and_have_the_published_areas_and_shapes(
    shape: tuple[int, int],
) -> None:
    part = tf.function(crops.random_crop)  # ten times as fast as operation by operation
    boxes = np.stack([part(one, tf.constant(shape)).numpy() for one in drawn(300)])
    assert boxes.min() >= 0
    assert boxes.max() <= 1 + 1e-6
    top, left, bottom, right = boxes.T
    high, wide = bottom - top, np.abs(right - left)
    areas, shapes = high * wide, wide * shape[1] / (high * shape[0])
    assert 0.08 - 1e-5 <= areas.min() < 0.12
    assert 0.85 < areas.max() <= 1 + 1e-5
    assert 3 / 4 - 1e-4 <= shapes.min() < 0.8
    assert 1.25 < shapes.max() <= 4 / 3 + 1e-4
    assert 0.35 < (right < left).mean() < 0.65  # mirrored


def test_where_no_part_fits_the_largest_one_in_the_middle_is_taken() -> None:
    draws = np.full(crops.DRAWS["random"], 0.999, np.float32)  # all of the area, in another shape
    top, left, bottom, right = crops.random_crop(draws, np.array([60, 600])).numpy()
    assert (top, bottom) == (0, 1)
    assert right - left == pytest.approx(80 / 600)
    assert left + right == pytest.approx(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_middle_of_a_photograph_is_a_square_of_its_short_side(shape: tuple[int, int]) -> None:
    top, left, bottom, right = crops.centre_crop(np.array([*shape, 3])).numpy()
    assert (bottom - top) * shape[0] == pytest.approx(0.875 * min(shape), rel=1e-5)
    assert (right - left) * shape[1] == pytest.approx(0.875 * min(shape), rel=1e-5)
    assert top + bottom == pytest.approx(1)
    assert left + right == pytest.approx(1)


def test_the_pre_training_sees_parts_and_the_transfer_whole_images() -> None:
    assert (PretrainSettings().crop, TrainSettings().crop) == ("random", "whole")


def test_random_parts_are_the_same_by_seed_epoch_and_step(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    images = [((at % 2,), png(draw.integers(0, 256, (40, 60)).astype(np.uint8)))
              for at in range(12)]
    folder = pack(tmp_path / "wide", {"train": images, "val": images}, labels="class")
    records = inputs.open_images(folder).records("train")

    def batches(epoch: int, first: int = 0, seed: int = 17) -> list[np.ndarray]:
        own = Loader(records, size=24, channels=3, augment=True, decoders=2, strategy=Strategy(),
                     plan=Plan(len(records), 5, seed, training=True), crop="random")
        return [one.images.numpy() for one in own.epoch(epoch, first)]

    whole, again, other = batches(0), batches(0, 1), batches(1)
    assert [one.shape for one in whole] == [(5, 24, 24, 3), (5, 24, 24, 3), (2, 24, 24, 3)]
    for one, two in zip(whole[1:], again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert (whole[0] != other[0]).any()
    assert (whole[0] != batches(0, seed=18)[0]).any()


def test_a_photograph_is_judged_by_its_middle(tmp_path: Path) -> None:
    """In an evaluation, the network does not see the left and right borders of a wide image."""
    pixels = np.zeros((32, 64), np.uint8)
    pixels[2:30, 18:46] = 200  # the middle 28 pixels
    images = [((0,), png(pixels))] * 2
    folder = pack(tmp_path / "wide", {"train": images, "val": images}, labels="class")
    settings = PretrainSettings(data=folder, size=32, batch_size_per_rank=2, channels="1")
    seen = next(inputs.open_inputs(settings, Strategy()).evaluation.epoch(0)).images.numpy()
    assert seen.shape == (2, 32, 32, 1)
    assert seen[:, 2:-2, 2:-2].min() == 200
