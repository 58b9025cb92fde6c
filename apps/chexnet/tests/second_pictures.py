"""A second implementation, in NumPy, of the windows of an image and of their scaling."""

from __future__ import annotations

import numpy as np

Box = tuple[float, float, float, float]
"""Top, left, bottom and right edge of a window, as fractions of the picture's height and width."""


def cut_out(pixels: np.ndarray, box: Box, size: int) -> np.ndarray:
    """Return the window `box` of a picture (H, W, C), scaled bilinearly to (size, size, C).

    The edges in `box` are coordinates: 0 and 1 are the centres of the first and last pixels
    of the picture. The centres of the first and last pixels of the result lie on these edges.
    """
    top, left, bottom, right = box
    down = np.linspace(top, bottom, size) * (pixels.shape[0] - 1)
    across = np.linspace(left, right, size) * (pixels.shape[1] - 1)
    row, column = np.floor(down).astype(int), np.floor(across).astype(int)
    below = np.minimum(row + 1, pixels.shape[0] - 1)
    beside = np.minimum(column + 1, pixels.shape[1] - 1)
    v, h = (down - row)[:, None, None], (across - column)[None, :, None]
    values = pixels.astype(float)
    upper = values[row][:, column] * (1 - h) + values[row][:, beside] * h
    lower = values[below][:, column] * (1 - h) + values[below][:, beside] * h
    return np.round(upper * (1 - v) + lower * v)


def shifted(draws: np.ndarray) -> Box:
    """Return the random window of CheXNet's augmentation, with 85 to 100 percent of each side.

    The window may be mirrored.
    """
    mirrored, side, down, across = map(float, draws)
    side = 0.85 + 0.15 * side
    top, left = down * (1 - side), across * (1 - side)
    right = left + side
    return (top, right, top + side, left) if mirrored < 0.5 else (top, left, top + side, right)


def some_part(draws: np.ndarray, height: int, width: int) -> Box:
    """Return a random window of a photograph: arXiv:1409.4842, section 6.

    Ten windows are tried, as in torchvision.
    """
    mirrored, down, across, *rest = map(float, draws)
    for area, shape in zip(rest[:10], rest[10:], strict=True):
        pixels = (0.08 + 0.92 * area) * height * width
        ratio = np.exp(np.log(3 / 4) + shape * (np.log(4 / 3) - np.log(3 / 4)))
        wide, high = np.sqrt(pixels * ratio), np.sqrt(pixels / ratio)
        if wide <= width and high <= height:
            break
    else:
        wide, high = min(width, height * 4 / 3), min(height, width * 4 / 3)
        down = across = 0.5
    top, left = down * (height - high) / height, across * (width - wide) / width
    bottom, right = top + high / height, left + wide / width
    return (top, right, bottom, left) if mirrored < 0.5 else (top, left, bottom, right)


def ten_parts() -> list[Box]:
    """Return the windows at the corners and in the centre of an image, and their mirror images.

    The side of a window is 224/256 of the side of the image.
    """
    end, middle = 32 / 256, 16 / 256
    corners = [(0, 0), (0, end), (end, 0), (end, end), (middle, middle)]
    found = [(top, left, top + 0.875, left + 0.875) for top, left in corners]
    return found + [(top, right, bottom, left) for top, left, bottom, right in found]


def same(found: np.ndarray, expected: np.ndarray) -> None:
    """Assert that the pixels of two images differ by at most 1, on average by less than 0.01."""
    difference = np.abs(found.astype(float) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.01
