"""A data set of small images with a bright square, whose position is their class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from packed_images import pack, png

CLASSES = 2


def image(seed: int, side: int = 32) -> tuple[bytes, int]:
    """Return a PNG file, and its class: 0 for a square on the left, 1 for one on the right."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 40, (side, side, 3)).astype(np.uint8)
    label = int(draw.integers(CLASSES))
    top, left = draw.integers(0, side // 2), label * side // 2 + draw.integers(0, side // 4)
    pixels[top : top + side // 4, left : left + side // 4] = 220
    return png(pixels), label


def squares(folder: Path, train: int = 27, val: int = 12) -> Path:
    """Write `train` images to train on, and `val` to evaluate on; return the folder."""
    splits = {
        name: tuple(zip(*(image(first + n) for n in range(count)), strict=True))
        for name, first, count in (("train", 0, train), ("val", 1000, val))
    }
    return pack(folder, splits, classes=CLASSES, channels=3, size=32)
