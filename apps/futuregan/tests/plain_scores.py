"""Reference implementation of the scores of predicted frames, in float64 NumPy.

Clips are (n, C, T, H, W) with values in -1..1, as in `futuregan.scores`.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Values = NDArray[np.float64]
Table = dict[str, dict[str, list[float]]]
"""Method -> measure -> the mean over the clips, one value for each future frame."""

PUBLISHED = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the scales in MS-SSIM, the finest scale first: Wang et al. 2003, section 3.2."""


def window() -> Values:
    """Return an 11x11 Gaussian window with standard deviation 1.5, normalized to a sum of 1."""
    row = np.exp(-np.arange(-5, 6) ** 2 / (2 * 1.5**2))
    return np.outer(row, row) / row.sum() ** 2


def similar(one: Values, other: Values) -> tuple[float, float]:
    """Return the SSIM of two frames (C, H, W) in 0..1, with and without the luminance factor.

    Wang et al. 2004, equations 12 to 16, over all windows that lie within the frame.
    """
    weights = window()

    def mean(values: Values) -> Values:
        return np.einsum("chwyx,yx->chw", sliding_window_view(values, (11, 11), (1, 2)), weights)

    first, second = mean(one), mean(other)
    spread = mean(one * one) - first**2, mean(other * other) - second**2
    both = mean(one * other) - first * second
    bright, contrast = 0.01**2, 0.03**2
    structure = (2 * both + contrast) / (spread[0] + spread[1] + contrast)
    light = (2 * first * second + bright) / (first**2 + second**2 + bright)
    return float((light * structure).mean()), float(structure.mean())


def over_scales(one: Values, other: Values) -> float:
    """Return the MS-SSIM of two frames (C, H, W) in 0..1.

    At the coarsest scale, the sides of the frames have at least 16 pixels.
    """
    count = min(5, int(np.log2(one.shape[-1] / 16)) + 1)
    weights = np.array(PUBLISHED[:count]) / sum(PUBLISHED[:count])
    found = 1.0
    for scale, weight in enumerate(weights):
        whole, structure = similar(one, other)
        found *= max(0.0, whole if scale == count - 1 else structure) ** weight
        one, other = (
            (each[:, ::2, ::2] + each[:, 1::2, ::2] + each[:, ::2, 1::2] + each[:, 1::2, 1::2]) / 4
            for each in (one, other)
        )
    return found


def steep(frame: Values, moved: Values) -> float:
    """Return the mean absolute gradient of a frame (C, H, W), weighted by its motion (H, W)."""
    total = []
    for axis in (0, 1):
        change = np.abs(np.diff(frame, axis=axis + 1))
        beside = np.stack([np.delete(moved, 0, axis), np.delete(moved, -1, axis)]).mean(0)
        total.append((change * beside).mean())
    return float(sum(total))


def futures(made: Values, past: Values, frames: int) -> dict[str, Values]:
    """Return the prediction and both baselines by name, each (n, C, frames, H, W) in -1..1."""
    last, before = past[:, :, -1], past[:, :, -2]
    return {
        "prediction": np.clip(made, -1, 1),
        "copy_last": np.stack([last] * frames, 2),
        "linear": np.stack([
            np.clip(last + number * (last - before), -1, 1) for number in range(1, frames + 1)
        ], 2),
    }


def table(made: Values, past: Values, truth: Values) -> Table:
    """Return all scores of the prediction and of both baselines."""
    frames, unit = truth.shape[2], lambda values: (values + 1) / 2
    found: Table = {}
    for method, future in futures(made, past, frames).items():
        rows: dict[str, list[float]] = {"mse": [], "psnr": [], "sharpness": []}
        if truth.shape[-1] >= 16:
            rows |= {"ssim": [], "ms_ssim": []}
        for at in range(frames):
            pairs = [(unit(one[:, at]), unit(right[:, at]), unit(before[:, -1]))
                     for one, right, before in zip(future, truth, past, strict=True)]
            errors = [float(((one - right) ** 2).mean()) for one, right, _ in pairs]
            rows["mse"].append(float(np.mean(errors)))
            rows["psnr"].append(float(np.mean([
                10 * np.log10(1 / max(error, 1e-10)) for error in errors])))
            moved = [np.abs(right - last).mean(0) for _, right, last in pairs]
            ours = sum(steep(one, where) for (one, *_), where in zip(pairs, moved, strict=True))
            true = sum(steep(right, where) for (_, right, _), where in zip(
                pairs, moved, strict=True))
            rows["sharpness"].append(ours / true if true > 0 else 1.0)
            if "ssim" in rows:
                rows["ssim"].append(float(np.mean([similar(one, right)[0]
                                                   for one, right, _ in pairs])))
                rows["ms_ssim"].append(float(np.mean([over_scales(one, right)
                                                      for one, right, _ in pairs])))
        found[method] = rows
    return found


def margin(scores: Table, measure: str) -> float:
    """Return the mean score of the prediction minus the mean score of the better baseline."""
    means = {method: float(np.mean(rows[measure])) for method, rows in scores.items()}
    return means["prediction"] - max(means["copy_last"], means["linear"])
