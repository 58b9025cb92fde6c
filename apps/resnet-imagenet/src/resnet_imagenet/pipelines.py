"""What happens to an image between its file and the network, as DALI graphs.

Every random decision comes from outside, as uniform draws in 0..1 per sample, and
not from DALI's own generators: so an epoch depends on its seed only, not on the
number of ranks, threads or restarts. All graphs run without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.pipeline import Pipeline

ATTEMPTS = 10  # tries for a random window that fits, as in torchvision's RandomResizedCrop
DRAWS = 2 * ATTEMPTS + 3
"""Uniform draws per training sample: area and ratio of each attempt, position (y, x), flip."""
PAD = 4
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
CENTRE = 0.875  # the evaluation crop is this part of the shorter side: 224 of 256
QUEUE = 2  # batches that DALI prepares ahead


@dataclass(frozen=True)
class Preprocessing:
    """How images become tensors; kept in checkpoints, so that prediction does the same.

    Attributes:
        channels: 1 (grey) or 3 (RGB).
        size: side of the square that the network sees, in pixels.
        mean: per channel, of values in 0..1.
        std: per channel, of values in 0..1.
        native: (height, width) of a set of small images of one size, which are used
            whole; None for photographs, which are cropped.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    native: tuple[int, int] | None

    @property
    def mode(self) -> Any:
        """Return DALI's name of the colour mode."""
        return types.GRAY if self.channels == 1 else types.RGB


def pipeline(
    preprocessing: Preprocessing,
    source: Iterator[Any],
    *,
    batch: int,
    threads: int,
    training: bool,
) -> Pipeline:
    """Return a pipeline of (float images NHWC, labels) over the batches of `source`.

    Args:
        preprocessing: the wanted tensors.
        source: yields (list of encoded images, labels (n, 1)) and, for training, draws
            (n, DRAWS); the image bytes are not copied and must stay valid.
        batch: the largest n.
        threads: decoding threads.
        training: augment, else the centre of each image.
    """
    pipe = Pipeline(batch, threads, device_id=None, prefetch_queue_depth=QUEUE, seed=0)
    kinds = [types.UINT8, types.INT64, types.FLOAT][: 3 if training else 2]
    with pipe:
        encoded, labels, *draws = fn.external_source(
            source=source,
            num_outputs=len(kinds),
            no_copy=True,
            dtype=kinds,
            ndim=[1] * len(kinds),
        )
        if training:
            images = augmented(encoded, draws[0], preprocessing)
            mirror = fn.cast(draws[0][DRAWS - 1] < 0.5, dtype=types.INT32)
        else:
            images, mirror = centred(encoded, preprocessing), 0
        pipe.set_outputs(normalized(images, preprocessing, mirror), labels)
    pipe.build()
    return pipe


def augmented(encoded: Any, draws: Any, to: Preprocessing) -> Any:
    """Return training images of `to.size`: random window of a photograph, or pad-and-crop.

    Photographs: Szegedy et al., arXiv:1409.4842, section 6; only the window is
    decoded. Small images: He et al., arXiv:1512.03385, section 4.2 (4 pixels of
    padding, random crop of the original size).
    """
    position = draws[2 * ATTEMPTS : 2 * ATTEMPTS + 2]
    if to.native is None:
        start, shape = random_window(fn.peek_image_shape(encoded), draws, position)
        images = fn.decoders.image_slice(
            encoded, start=start, shape=shape, axes=[0, 1], output_type=to.mode
        )
        return resized(images, to)
    images = fn.decoders.image(encoded, output_type=to.mode)
    start = fn.cast(dali_math.floor(position * (2 * PAD + 1)) - PAD, dtype=types.INT32)
    images = fn.slice(
        images, start=start, shape=to.native, axes=[0, 1], out_of_bounds_policy="pad"
    )
    return images if to.native == (to.size, to.size) else resized(images, to)


def random_window(image_shape: Any, draws: Any, position: Any) -> tuple[Any, Any]:
    """Return (start, shape), each (y, x) in pixels, of the first of `ATTEMPTS` windows that fits.

    Area and aspect ratio (log-uniform) are drawn in `AREA` and `RATIO`; if no window
    fits into the image, the largest one with an allowed ratio is taken.
    """
    height = fn.cast(image_shape[0], dtype=types.FLOAT)
    width = fn.cast(image_shape[1], dtype=types.FLOAT)
    area = (AREA[0] + (AREA[1] - AREA[0]) * draws[:ATTEMPTS]) * height * width
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    ratio = dali_math.exp(low + (high - low) * draws[ATTEMPTS : 2 * ATTEMPTS])
    widths = dali_math.floor(dali_math.sqrt(area * ratio) + 0.5)
    heights = dali_math.floor(dali_math.sqrt(area / ratio) + 0.5)
    fits = (widths <= width) & (heights <= height) & (widths >= 1) & (heights >= 1)
    number = types.Constant(np.arange(ATTEMPTS, dtype=np.float32), device="cpu")
    first = fn.reductions.min(number + ATTEMPTS * (1 - fn.cast(fits, dtype=types.FLOAT)))
    chosen = fn.cast(number == first, dtype=types.FLOAT)
    none = fn.cast(first >= ATTEMPTS, dtype=types.FLOAT)
    window_h = fn.reductions.sum(heights * chosen) + none * dali_math.min(
        height, dali_math.floor(width / RATIO[0])
    )
    window_w = fn.reductions.sum(widths * chosen) + none * dali_math.min(
        width, dali_math.floor(height * RATIO[1])
    )
    start_y = dali_math.floor(position[0] * (height - window_h + 1))
    start_x = dali_math.floor(position[1] * (width - window_w + 1))
    start, shape = fn.stack(start_y, start_x), fn.stack(window_h, window_w)
    return fn.cast(start, dtype=types.INT32), fn.cast(shape, dtype=types.INT32)


def centred(encoded: Any, to: Preprocessing) -> Any:
    """Return whole small images, or photographs with the shorter side at `to.size` / `CENTRE`."""
    images = fn.decoders.image(encoded, output_type=to.mode)
    if to.native is not None:
        return images if to.native == (to.size, to.size) else resized(images, to)
    return fn.resize(images, resize_shorter=round(to.size / CENTRE), antialias=True)


def resized(images: Any, to: Preprocessing) -> Any:
    """Return `images` at `to.size` squared."""
    return fn.resize(images, size=[to.size, to.size], antialias=True)


def normalized(images: Any, to: Preprocessing, mirror: Any) -> Any:
    """Return the centre of `to.size` as floats with mean 0 and deviation 1, HWC."""
    return fn.crop_mirror_normalize(
        images,
        crop=(to.size, to.size),
        mirror=mirror,
        mean=[255 * value for value in to.mean],
        std=[255 * value for value in to.std],
        dtype=types.FLOAT,
        output_layout="HWC",
    )


def defect(encoded: Any) -> str | None:
    """Return what is wrong with one image file, or None if it can be decoded.

    DALI's own text names its operators and no cause, so the content speaks instead.
    """
    pipe = Pipeline(1, 1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        data = fn.external_source(source=lambda: [encoded], dtype=types.UINT8, ndim=1)
        pipe.set_outputs(fn.decoders.image(data, output_type=types.ANY_DATA))
    try:
        pipe.build()
        pipe.run()
    except RuntimeError:
        start = np.asarray(encoded[:8]).tobytes()
        return f"cannot be decoded as an image ({len(encoded)} bytes, beginning with {start!r})"
    return None
