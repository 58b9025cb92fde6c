"""Which part of an image a network sees: windows as boxes, and what makes squares of them.

A box is top, left, bottom, right, in parts of height and width; one whose right is left of its left
is mirrored. What is drawn comes in as numbers of 0..1, so this has no state.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

SMALLEST = 0.85  # side of the window, of the image's
AREA, RATIO, TRIES = 0.08, 4 / 3, 10  # of a random part of a photograph
CENTRE = 0.875  # 224 of 256 pixels: side of its middle part, of the shorter side
DRAWS = {"whole": 4, "random": 3 + 2 * TRIES}  # of an image, as `window` and `random_part` say
WHOLE = (0.0, 0.0, 1.0, 1.0)
EDGE = 2.0**-21  # of an image: eight times the rounding of a place in it


def scaled(image: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Return windows of an image as squares of `size` pixels, (windows, size, size, channels).

    Args:
        image: values of 0..255, (height, width, channels).
        boxes: top, left, bottom, right of 0..1, (windows, 4).
        size: in pixels.
    """
    which = tf.zeros(tf.shape(boxes)[0], tf.int32)
    # A place that is beyond the image by its rounding would be black: a line of some sizes.
    boxes = tf.clip_by_value(boxes, EDGE, 1 - EDGE)
    return tf.cast(tf.round(tf.image.crop_and_resize(image[None], boxes, which, (size, size))),
                   tf.uint8)


def window(draws: tf.Tensor) -> tf.Tensor:
    """Return the window of an augmented image, top, left, bottom, right of 0..1; perhaps mirrored.

    Args:
        draws: four numbers of 0..1.
    """
    side = SMALLEST + (1 - SMALLEST) * draws[1]
    top, left = draws[2] * (1 - side), draws[3] * (1 - side)
    return _perhaps_mirrored(draws[0], top, left, top + side, left + side)


def _perhaps_mirrored(
    draw: tf.Tensor, top: tf.Tensor, left: tf.Tensor, bottom: tf.Tensor, right: tf.Tensor
) -> tf.Tensor:
    mirrored = draw < 0.5
    return tf.stack([top, tf.where(mirrored, right, left), bottom,
                     tf.where(mirrored, left, right)])


def random_part(draws: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Return a random window of a photograph, of any size and almost any shape; perhaps mirrored.

    Szegedy et al., arXiv:1409.4842, section 6: 8 to 100 percent of the area, 3:4 to 4:3. The first
    of ten tries that fits into the image, else the largest such window in the middle, as
    torchvision.

    Args:
        draws: mirrored, where down and across, ten areas and ten shapes, of 0..1, (23,).
        shape: height, width, in pixels.
    """
    height, width = tf.cast(shape[0], tf.float32), tf.cast(shape[1], tf.float32)
    areas = (AREA + (1 - AREA) * draws[3 : 3 + TRIES]) * height * width
    ratios = RATIO ** (2 * draws[3 + TRIES :] - 1)
    wide, high = tf.sqrt(areas * ratios), tf.sqrt(areas / ratios)
    fits = tf.logical_and(wide <= width, high <= height)
    some, first = tf.reduce_any(fits), tf.argmax(tf.cast(fits, tf.int32))
    across = tf.where(some, wide[first], tf.minimum(width, RATIO * height)) / width
    down = tf.where(some, high[first], tf.minimum(height, RATIO * width)) / height
    top = tf.where(some, draws[1], 0.5) * (1 - down)
    left = tf.where(some, draws[2], 0.5) * (1 - across)
    return _perhaps_mirrored(draws[0], top, left, top + down, left + across)


def middle(shape: tf.Tensor) -> tf.Tensor:
    """Return the square window in the middle of a photograph, 224 of 256 pixels of its short side.

    Args:
        shape: height, width, in pixels.
    """
    sides = tf.cast(shape[:2], tf.float32)
    part = CENTRE * tf.reduce_min(sides) / sides
    return tf.concat([(1 - part) / 2, (1 + part) / 2], 0)


def ten(side: float = CENTRE) -> NDArray[np.float32]:
    """Return the corners and the centre of an image, and all mirrored: (10, 4).

    Krizhevsky et al., 2012, section 4.1; `side` is 224 of 256 pixels.
    """
    rest = 1 - side
    places = [(0, 0), (0, rest), (rest, 0), (rest, rest), (rest / 2, rest / 2)]
    boxes = [(top, left, top + side, left + side) for top, left in places]
    mirrored = [(top, right, bottom, left) for top, left, bottom, right in boxes]
    return np.array(boxes + mirrored, np.float32)
