"""Scores of predicted frames compared with true frames, and of two baselines without training.

Scores of each frame: mean squared error, peak signal-to-noise ratio, structural similarity (Wang
et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", IEEE TIP 13 (4),
2004), multi-scale structural similarity (Wang et al., "Multi-scale Structural Similarity for Image
Quality Assessment", Asilomar 2003), and sharpness in moving regions. torchmetrics computes both
structural similarities.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainkit import plots
from trainkit.strategy import Strategy

METHODS = ("prediction", "copy_last", "linear")
"""The compared predictions: the network, the repeated last frame, and linear extrapolation."""
MIN_MSE = 1e-10
"""Lower limit of the mean squared error in a PSNR, because equal frames have an infinite PSNR."""
EDGE = 5
"""Distance in pixels from the centre to the edge of the SSIM window, whose side has 11 pixels."""
SMALLEST = 16
"""Side in pixels of the smallest frames for which SSIM is computed."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the scales in MS-SSIM, the finest scale first: Wang et al. 2003, section 3.2."""
FRAMES_AT_ONCE = 256
"""Number of frames to compare at once; it limits the memory, because SSIM copies the frames."""


def scales(size: int) -> int:
    """Return the number of scales of MS-SSIM for frames of `size` pixels.

    Each scale after the first halves the side of the frames, which at the last scale is at least 16
    pixels.
    """
    return min(len(WEIGHTS), (size // SMALLEST).bit_length())


def baselines(past: Tensor, frames: int) -> Iterator[Tensor]:
    """Yield two predictions without training: the last frame repeated, and linear extrapolation."""
    last, before = past[:, :, -1:], past[:, :, -2:-1]
    yield last.expand(-1, -1, frames, -1, -1)
    times = torch.arange(1, frames + 1, device=past.device).view(-1, 1, 1)
    yield (last + (last - before) * times).clamp(-1, 1)


def measures(size: int) -> tuple[str, ...]:
    """Return the names of the measures for frames of `size` pixels."""
    return ("mse", "psnr", *(("ssim", "ms_ssim") if scales(size) else ()))


def measure_frames(frames: Tensor, truth: Tensor) -> Tensor:
    """Return all `measures` of frames (N, C, H, W) with values in 0..1: (measures, N)."""
    errors = (frames - truth).square().mean((1, 2, 3))
    found = [errors, -10 * errors.clamp_min(MIN_MSE).log10()]
    if count := scales(frames.shape[-1]):
        found += [ssim(frames, truth), ms_ssim(frames, truth, count)]
    return torch.stack(found)


@functools.cache
def torchmetrics_ssim() -> Callable[..., Any]:
    """Import torchmetrics' structural similarity at its first use, and return it."""
    with plots.drawing():  # torchmetrics imports matplotlib, which writes to the home folder
        from torchmetrics.functional.image import structural_similarity_index_measure
    return structural_similarity_index_measure


def ssim(frames: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity of frames (N, C, H, W) over all complete windows: (N,)."""
    _, places = torchmetrics_ssim()(
        frames, truth, data_range=1.0, reduction="none", return_full_image=True
    )
    # Other windows would contain the mirrored border of the frames.
    inner: Tensor = places[..., EDGE:-EDGE, EDGE:-EDGE]
    return inner.mean((1, 2, 3))


def ms_ssim(frames: Tensor, truth: Tensor, count: int) -> Tensor:
    """Return the multi-scale structural similarity over `count` scales: Wang et al. 2003, eq. 7.

    With fewer than the five published scales, the weights keep their proportions.

    Args:
        frames: predicted frames (N, C, H, W) with values in 0..1.
        truth: true frames (N, C, H, W) with values in 0..1.
        count: number of scales.

    Returns:
        One value per frame, (N,).
    """
    found = torch.ones(len(frames), device=frames.device)
    for scale, weight in enumerate(WEIGHTS[:count]):
        if scale:
            frames, truth = (functional.avg_pool2d(one, 2) for one in (frames, truth))
        if scale == count - 1:
            factor = ssim(frames, truth)
        else:  # contrast and structure, without luminance
            _, factor = torchmetrics_ssim()(
                frames, truth, data_range=1.0, reduction="none", return_contrast_sensitivity=True
            )
        found = found * factor.clamp_min(0) ** (weight / sum(WEIGHTS[:count]))
    return found


def gradient_magnitude(frames: Tensor, moving: Tensor) -> Tensor:
    """Return the mean absolute image gradient in the moving regions of each frame, (N,).

    Still regions would not show blur, because they are as sharp as in the last input frame.

    Args:
        frames: (N, C, H, W).
        moving: motion at each pixel, the weight of its gradient, (N, 1, H, W).
    """
    down, across = (frames.diff(dim=side).abs() * _neighbour_means(moving, side) for side in (2, 3))
    return down.mean((1, 2, 3)) + across.mean((1, 2, 3))


def _neighbour_means(values: Tensor, side: int) -> Tensor:
    """Return the mean of each pair of neighbouring pixels along the dimension `side`."""
    count = values.shape[side] - 1
    return (values.narrow(side, 0, count) + values.narrow(side, 1, count)) / 2


@dataclass(frozen=True)
class Scores:
    """Means of the measures over clips, for each future frame.

    Attributes:
        clips: number of clips.
        size: side of the frames, in pixels.
        frames: method -> measure -> one value per frame. The measure `sharpness` is
            `gradient_magnitude` of the prediction divided by `gradient_magnitude` of the truth;
            less than 1 means that the prediction is blurrier.
    """

    clips: int
    size: int
    frames: dict[str, dict[str, list[float]]]

    def mean(self, method: str, measure: str) -> float:
        """Return the mean of a measure over the frames."""
        values = self.frames[method][measure]
        return sum(values) / len(values)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of all measures."""
        return (*measures(self.size), "sharpness")

    def margin(self, measure: str) -> float:
        """Return the score of the prediction minus the score of the better baseline.

        A larger value of the measure must be better, as for PSNR.
        """
        ours, *others = (self.mean(method, measure) for method in METHODS)
        return ours - max(others)


class ScoreSums:
    """Sums of the measures over batches of clips; each rank adds its own clips.

    Args:
        size: side of the frames, in pixels.
        frames: number of future frames.
        device: device of the clips.
    """

    def __init__(self, size: int, frames: int, device: torch.device) -> None:
        self._size, self._frames, self._clips = size, frames, 0
        rows = len(measures(size)) + 2
        self._sums = torch.zeros(len(METHODS), rows, frames, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, prediction: Tensor, past: Tensor, truth: Tensor) -> None:
        """Add the measures of a batch.

        Args:
            prediction: predicted frames (n, C, T, H, W) in -1..1.
            past: input frames (n, C, T, H, W) in -1..1.
            truth: true future frames (n, C, T, H, W) in -1..1.
        """
        if not len(truth):
            return
        self._clips += len(truth)
        expected = _frames(truth)
        last = _frames(past[:, :, -1:].expand_as(truth))
        moving = (expected - last).abs().mean(1, keepdim=True)
        steep = gradient_magnitude(expected, moving)
        for at, future in enumerate((prediction.clamp(-1, 1), *baselines(past, truth.shape[2]))):
            frames = _frames(future)
            found = torch.cat([
                measure_frames(some, right)
                for some, right in zip(_blocks(frames), _blocks(expected), strict=True)
            ], 1)
            rows = torch.cat([found, gradient_magnitude(frames, moving)[None], steep[None]])
            self._sums[at] += rows.view(len(rows), -1, self._frames).double().sum(1)

    def mean_over(self, strategy: Strategy) -> Scores:
        """Return the means over the clips of all ranks."""
        *flat, clips = strategy.sum([*self._sums.flatten().tolist(), self._clips])
        table = torch.tensor(flat, dtype=torch.float64).view(self._sums.shape)
        means = table[:, :-2] / clips
        prediction, true = table[:, -2], table[:, -1]
        # Frames without motion get the sharpness 1.
        sharpness = torch.where(true > MIN_MSE, prediction / true, 1.0)
        names = measures(self._size)
        return Scores(int(clips), self._size, {
            method: dict(zip(names, means[at].tolist(), strict=True))
            | {"sharpness": sharpness[at].tolist()}
            for at, method in enumerate(METHODS)
        })


def _blocks(frames: Tensor) -> tuple[Tensor, ...]:
    return frames.tensor_split(-(-len(frames) // FRAMES_AT_ONCE))


def _frames(clips: Tensor) -> Tensor:
    """Return the frames of clips (n, C, T, H, W) in -1..1 as (n * T, C, H, W) in 0..1."""
    return clips.float().transpose(1, 2).flatten(0, 1).add(1).div(2)
