"""Test crop windows: the parts of images that the network gets.

A second implementation of the rule in torchvision's documentation computes the random windows
with plain numbers instead of arrays; both results must be equal.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resnet_imagenet import crop_windows

SIDES = st.integers(1, 900)


def by_hand(height: int, width: int, draw: np.ndarray) -> tuple[int, int, int, int]:
    """Return y, x, height and width of a window, by the rule in torchvision's documentation."""
    values = [float(value) for value in draw]
    h, w = min(height, max(1, int(width / 0.75))), min(width, max(1, int(height * 4 / 3)))
    for area, ratio in zip(values[:10], values[10:20], strict=True):
        pixels = (0.08 + 0.92 * area) * height * width
        aspect = math.exp(math.log(3 / 4) + ratio * (math.log(4 / 3) - math.log(3 / 4)))
        tall, wide = round_half_up(pixels / aspect), round_half_up(pixels * aspect)
        if 0 < wide <= width and 0 < tall <= height:
            h, w = tall, wide
            break
    return int(values[20] * (height - h + 1)), int(values[21] * (width - w + 1)), h, w


def round_half_up(square: float) -> int:
    return int(math.sqrt(square) + 0.5)


@settings(max_examples=60, deadline=None)
@given(SIDES, SIDES, st.integers(0, 2**32))
def test_random_windows_lie_inside_and_follow_the_rule(height: int, width: int, seed: int) -> None:
    draws = np.random.default_rng(seed).random((64, crop_windows.DRAWS), np.float32)
    start, shape = crop_windows.random_windows(np.tile([height, width, 3], (64, 1)), draws)
    assert (start >= 0).all()
    assert (shape >= 1).all()
    assert (start + shape <= [height, width]).all()
    expected = [by_hand(height, width, draw) for draw in draws]
    assert np.hstack([start, shape]).tolist() == [list(window) for window in expected]


@settings(max_examples=60, deadline=None)
@given(SIDES, SIDES, st.integers(0, 2**32))
def test_plain_windows_are_squares_of_one_scale(height: int, width: int, seed: int) -> None:
    draws = np.random.default_rng(seed).random((64, crop_windows.DRAWS), np.float32)
    start, shape = crop_windows.plain_windows(np.tile([height, width], (64, 1)), draws)
    assert (start >= 0).all()
    assert (start + shape <= [height, width]).all()
    assert (np.abs(shape - 0.875 * min(height, width)) <= 0.5).all() or min(height, width) == 1
    if max(height, width) > 16 * min(height, width):
        assert len(np.unique(start, axis=0)) > 1


@given(SIDES, SIDES)
def test_the_centre_window_leaves_the_same_on_both_sides(height: int, width: int) -> None:
    (start,), (shape,) = crop_windows.centre_windows(np.array([[height, width]]))
    rest = [height, width] - shape
    assert (np.abs(rest - 2 * start) <= 1).all()
    assert shape[0] == shape[1]


def test_224_of_256_is_the_centre_of_a_resized_photograph() -> None:
    assert crop_windows.centre_windows(np.array([[256, 400]])) == (
        pytest.approx(np.array([[16, 88]])),
        pytest.approx(np.array([[224, 224]])),
    )


def test_padded_starts_cover_the_padding_evenly_and_half_is_mirrored() -> None:
    draws = np.random.default_rng(1).random((9000, crop_windows.DRAWS), np.float32)
    start = crop_windows.padded_starts(draws)
    places, counts = np.unique(start, axis=0, return_counts=True)
    assert places.min() == -4
    assert places.max() == 4
    assert len(places) == 81
    assert counts.min() > 60
    mirror = crop_windows.mirrored(draws)
    assert mirror.shape == (9000, 1)
    assert mirror.mean() == pytest.approx(0.5, abs=0.03)
