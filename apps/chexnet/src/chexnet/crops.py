"""Choose windows of an image as boxes, and convert the windows to squares for a network.

A box is (top, left, bottom, right) as fractions of height and width; if right is smaller than left,
the window is mirrored. Random draws in 0..1 are arguments, so that the functions have no state.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

SMALLEST = 0.85  # of an augmented image: smallest side of a window / side of the image
AREA, RATIO, TRIES = 0.08, 4 / 3, 10  # of a random crop of a photograph
CENTRE = 0.875  # side of the centre crop / shorter side of the photograph: 224 / 256
DRAWS = {"whole": 4, "random": 3 + 2 * TRIES}  # number of random draws per image
WHOLE = (0.0, 0.0, 1.0, 1.0)
EDGE = 2.0**-21  # fraction of the side of an image: 8 times the rounding error of a position


def crop_and_resize(image: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Return windows of an image as squares of `size` pixels, (windows, size, size, channels).

    Args:
        image: values 0..255, (height, width, channels).
        boxes: top, left, bottom, right in 0..1, (windows, 4).
        size: side of the squares, in pixels.
    """
    which = tf.zeros(tf.shape(boxes)[0], tf.int32)
    # A position that is outside the image by a rounding error would give a black line.
    boxes = tf.clip_by_value(boxes, EDGE, 1 - EDGE)
    return tf.cast(tf.round(tf.image.crop_and_resize(image[None], boxes, which, (size, size))),
                   tf.uint8)


def random_window(draws: tf.Tensor) -> tf.Tensor:
    """Return the box of a random window of an image, to augment the training data.

    In half of the cases, left and right of the box are exchanged, which mirrors the window.

    Args:
        draws: random numbers in 0..1 for the mirroring, the side, and the vertical and horizontal
            position, (4,).
    """
    side = SMALLEST + (1 - SMALLEST) * draws[1]
    top, left = draws[2] * (1 - side), draws[3] * (1 - side)
    return _mirror_if(draws[0], top, left, top + side, left + side)


def _mirror_if(
    draw: tf.Tensor, top: tf.Tensor, left: tf.Tensor, bottom: tf.Tensor, right: tf.Tensor
) -> tf.Tensor:
    mirrored = draw < 0.5
    return tf.stack([top, tf.where(mirrored, right, left), bottom,
                     tf.where(mirrored, left, right)])


def random_crop(draws: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Return a window of a photograph with random area and aspect ratio, which may be mirrored.

    Szegedy et al., arXiv:1409.4842, section 6: 8 to 100 percent of the area, aspect ratio 3:4 to
    4:3. The window is the first of ten attempts that fits into the image. If none fits, it is the
    largest window in the centre with an allowed aspect ratio, as in torchvision.

    Args:
        draws: random numbers in 0..1 for the mirroring, the vertical and horizontal position, ten
            areas and ten ratios, (23,).
        shape: height and width of the photograph in pixels.
    """
    height, width = tf.cast(shape[0], tf.float32), tf.cast(shape[1], tf.float32)
    areas = (AREA + (1 - AREA) * draws[3 : 3 + TRIES]) * height * width
    ratios = RATIO ** (2 * draws[3 + TRIES :] - 1)
    wide, high = tf.sqrt(areas * ratios), tf.sqrt(areas / ratios)
    fits = tf.logical_and(wide <= width, high <= height)
    any_fits, first = tf.reduce_any(fits), tf.argmax(tf.cast(fits, tf.int32))
    across = tf.where(any_fits, wide[first], tf.minimum(width, RATIO * height)) / width
    down = tf.where(any_fits, high[first], tf.minimum(height, RATIO * width)) / height
    top = tf.where(any_fits, draws[1], 0.5) * (1 - down)
    left = tf.where(any_fits, draws[2], 0.5) * (1 - across)
    return _mirror_if(draws[0], top, left, top + down, left + across)


def centre_crop(shape: tf.Tensor) -> tf.Tensor:
    """Return the square window in the centre of a photograph, with 224/256 of its shorter side.

    Args:
        shape: height and width of the photograph in pixels.
    """
    sides = tf.cast(shape[:2], tf.float32)
    part = CENTRE * tf.reduce_min(sides) / sides
    return tf.concat([(1 - part) / 2, (1 + part) / 2], 0)


def ten_crops(side: float = CENTRE) -> NDArray[np.float32]:
    """Return windows at the four corners and in the centre, and their mirror images: (10, 4).

    Krizhevsky et al., 2012, section 4.1.

    Args:
        side: side of a window divided by the side of the image; default: 224/256.
    """
    rest = 1 - side
    places = [(0, 0), (0, rest), (rest, 0), (rest, rest), (rest / 2, rest / 2)]
    boxes = [(top, left, top + side, left + side) for top, left in places]
    mirrored = [(top, right, bottom, left) for top, left, bottom, right in boxes]
    return np.array(boxes + mirrored, np.float32)
