"""Compute the window of an image that the network gets, from uniform random draws.

A window is (start, shape), each (y, x) in pixels of the stored image. Only the window is decoded;
it is then resized to the input size of the network.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 10  # tries for a random window that fits, as in torchvision's RandomResizedCrop
DRAWS = 2 * ATTEMPTS + 3
"""Number of uniform draws for each training sample.

They are the areas of all attempts, the ratios of all attempts, the position (y, x), and the flip.
"""
POSITION = slice(2 * ATTEMPTS, 2 * ATTEMPTS + 2)
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
PAD = 4  # pixels added to each side of a small image before a random crop of the original size
CENTRE = 0.875  # side of the evaluation window / shorter side of the image: 224 / 256

Integers = NDArray[np.int32]
Floats = NDArray[np.float32]


def random_windows(shapes: NDArray[np.int64], draws: Floats) -> tuple[Integers, Integers]:
    """Return a random window of each image: the first of `ATTEMPTS` windows that fits into it.

    Area and aspect ratio (log-uniform) are drawn from `AREA` and `RATIO`; if no window fits, the
    largest window with an allowed ratio is used. Szegedy et al., arXiv:1409.4842, section 6.

    Args:
        shapes: (height, width) or (height, width, channels) of each image, (n, 2 or 3).
        draws: uniform draws of each image, (n, DRAWS).
    """
    height, width = shapes[:, :1].astype(float), shapes[:, 1:2].astype(float)
    uniform = draws.astype(np.float64)
    area = (AREA[0] + (AREA[1] - AREA[0]) * uniform[:, :ATTEMPTS]) * height * width
    low, high = np.log(RATIO)
    ratio = np.exp(low + (high - low) * uniform[:, ATTEMPTS : 2 * ATTEMPTS])
    heights = np.floor(np.sqrt(area / ratio) + 0.5)
    widths = np.floor(np.sqrt(area * ratio) + 0.5)
    fits = (widths <= width) & (heights <= height) & (widths >= 1) & (heights >= 1)
    # One more attempt, which always fits.
    fits = np.pad(fits, ((0, 0), (0, 1)), constant_values=True)
    heights = np.hstack([heights, np.minimum(height, np.maximum(1, width // RATIO[0]))])
    widths = np.hstack([widths, np.minimum(width, np.maximum(1, height * RATIO[1] // 1))])
    chosen = fits.argmax(axis=1)[:, None]
    sides = np.take_along_axis(heights, chosen, 1), np.take_along_axis(widths, chosen, 1)
    return _place(shapes, np.hstack(sides).astype(np.int32), uniform)


def plain_windows(shapes: NDArray[np.int64], draws: Floats) -> tuple[Integers, Integers]:
    """Return square windows of constant scale at a random position.

    The side of a window is 224/256 of the shorter side of the image. Scale and aspect ratio are not
    augmented, as in the last phase of Codreanu et al., arXiv:1711.04291.

    Args:
        shapes: (height, width) or (height, width, channels) of each image, (n, 2 or 3).
        draws: uniform draws of each image, (n, DRAWS).
    """
    return _place(shapes, _squares(shapes), draws.astype(float))


def centre_windows(shapes: NDArray[np.int64]) -> tuple[Integers, Integers]:
    """Return the square window in the centre of each image, with 224/256 of its shorter side.

    Cropping precedes resizing, as in the TPU reference ResNet (decode_and_center_crop): the result
    is the same part of the image as in the other order, but less is decoded.

    Args:
        shapes: (height, width) or (height, width, channels) of each image, (n, 2 or 3).
    """
    sides = _squares(shapes)
    return ((shapes[:, :2] - sides) // 2).astype(np.int32), sides


def _squares(shapes: NDArray[np.int64]) -> Integers:
    side = np.maximum(1, np.rint(CENTRE * shapes[:, :2].min(axis=1, keepdims=True)))
    sides: Integers = side.astype(np.int32).repeat(2, axis=1)
    return sides


def _place(
    shapes: NDArray[np.int64], sides: Integers, draws: NDArray[np.float64]
) -> tuple[Integers, Integers]:
    start = np.floor(draws[:, POSITION] * (shapes[:, :2] - sides + 1))
    return start.astype(np.int32), sides


def padded_starts(draws: Floats) -> Integers:
    """Return where the random crops of padded small images start: (y, x), (n, 2).

    The images are padded by `PAD`, and the crops have the original size: He et al.,
    arXiv:1512.03385, section 4.2. Positions are relative to the corner of the image without
    padding; a position in the padding above or to the left of the image is negative.
    """
    places = np.floor(draws[:, POSITION].astype(float) * (2 * PAD + 1)) - PAD
    starts: Integers = places.astype(np.int32)
    return starts


def mirrored(draws: Floats) -> Integers:
    """Return 1 for each image to flip, else 0, (n, 1)."""
    return (draws[:, DRAWS - 1 :] < 0.5).astype(np.int32)  # half of the images
