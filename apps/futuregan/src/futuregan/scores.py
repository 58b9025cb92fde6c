"""How near predicted frames come to the truth, and what needs no training beside them.

Of each frame: mean squared error, peak signal-to-noise ratio, structural similarity (Wang et al.,
"Image Quality Assessment: From Error Visibility to Structural Similarity", IEEE TIP 13 (4), 2004)
and its product over scales (Wang et al., "Multi-scale Structural Similarity for Image Quality
Assessment", Asilomar 2003), both by torchmetrics; and how sharp it is where something moves.
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
"""What is compared: the network, the last frame again, and its last change gone on with."""
LEAST = 1e-10
"""Least mean squared error: of equal frames there is no ratio."""
EDGE = 5
"""Pixels from the centre of the window of a similarity to its edge: it has a side of 11."""
SMALLEST = 16
"""Side of the smallest frames with a similarity."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Of the scales, the finest first: Wang et al. 2003, section 3.2."""
BLOCK = 256
"""Frames to compare at once: similarities need some copies of them."""


def scales(size: int) -> int:
    """Return on how many scales frames of so many pixels are compared: the last has 16 or more."""
    return min(len(WEIGHTS), (size // SMALLEST).bit_length())


def baselines(past: Tensor, frames: int) -> Iterator[Tensor]:
    """Yield futures that need no training: the last frame again, and its change gone on with."""
    last, before = past[:, :, -1:], past[:, :, -2:-1]
    yield last.expand(-1, -1, frames, -1, -1)
    times = torch.arange(1, frames + 1, device=past.device).view(-1, 1, 1)
    yield (last + (last - before) * times).clamp(-1, 1)


def measures(size: int) -> tuple[str, ...]:
    """Return the names of what is measured of frames of so many pixels."""
    return ("mse", "psnr", *(("ssim", "ms_ssim") if scales(size) else ()))


def measured(frames: Tensor, truth: Tensor) -> Tensor:
    """Return each of `measures` of frames (N, C, H, W), with values in 0..1: (measures, N)."""
    errors = (frames - truth).square().mean((1, 2, 3))
    found = [errors, -10 * errors.clamp_min(LEAST).log10()]
    if count := scales(frames.shape[-1]):
        found += [similarity(frames, truth), over_scales(frames, truth, count)]
    return torch.stack(found)


@functools.cache
def library() -> Callable[..., Any]:
    """Return torchmetrics' structural similarity, imported where it is first needed."""
    with plots.drawing():  # it imports matplotlib, which takes seconds and looks for a home
        from torchmetrics.functional.image import structural_similarity_index_measure
    return structural_similarity_index_measure


def similarity(frames: Tensor, truth: Tensor) -> Tensor:
    """Return the structural similarity of frames (N, C, H, W), over whole windows: (N,)."""
    _, places = library()(
        frames, truth, data_range=1.0, reduction="none", return_full_image=True
    )
    # Beyond, the window would see frames that are continued by their mirror image.
    inner: Tensor = places[..., EDGE:-EDGE, EDGE:-EDGE]
    return inner.mean((1, 2, 3))


def over_scales(frames: Tensor, truth: Tensor, count: int) -> Tensor:
    """Return the product of similarities over `count` scales: Wang et al. 2003, equation 7.

    With fewer scales than the five published, their weights keep their proportions.
    """
    found = torch.ones(len(frames), device=frames.device)
    for scale, weight in enumerate(WEIGHTS[:count]):
        if scale:
            frames, truth = (functional.avg_pool2d(one, 2) for one in (frames, truth))
        if scale == count - 1:
            factor = similarity(frames, truth)
        else:  # contrast and structure, without brightness
            _, factor = library()(
                frames, truth, data_range=1.0, reduction="none", return_contrast_sensitivity=True
            )
        found = found * factor.clamp_min(0) ** (weight / sum(WEIGHTS[:count]))
    return found


def steepness(frames: Tensor, moving: Tensor) -> Tensor:
    """Return how steep frames (N, C, H, W) are where something moves: (N,).

    It is the mean size of the differences between neighbours, each times `moving` (N, 1, H, W)
    there: what stands still is as sharp as the last frame, and says nothing of a prediction.
    """
    down, across = (frames.diff(dim=side).abs() * _between(moving, side) for side in (2, 3))
    return down.mean((1, 2, 3)) + across.mean((1, 2, 3))


def _between(values: Tensor, side: int) -> Tensor:
    """Return the means of neighbours along one side."""
    count = values.shape[side] - 1
    return (values.narrow(side, 0, count) + values.narrow(side, 1, count)) / 2


@dataclass(frozen=True)
class Scores:
    """Means over clips, for each frame of the future.

    Attributes:
        clips: how many.
        size: side of the frames, in pixels.
        frames: method -> measure -> a value for each frame; `sharpness` is the steepness of the
            frames, where the truth is not the last frame given, as a fraction of that of the
            truth: less than 1 is blurrier.
    """

    clips: int
    size: int
    frames: dict[str, dict[str, list[float]]]

    def mean(self, method: str, measure: str) -> float:
        """Return the mean over the frames."""
        values = self.frames[method][measure]
        return sum(values) / len(values)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of what was measured."""
        return (*measures(self.size), "sharpness")

    def margin(self, measure: str) -> float:
        """Return by how much the prediction is better than the better of what needs no training."""
        ours, *others = (self.mean(method, measure) for method in METHODS)
        return ours - max(others)


class Sums:
    """Adds up the measures of batches of clips, on each rank those of its own.

    Args:
        size: side of the frames, in pixels.
        frames: of the future.
        device: where the clips are.
    """

    def __init__(self, size: int, frames: int, device: torch.device) -> None:
        self._size, self._frames, self._clips = size, frames, 0
        rows = len(measures(size)) + 2
        self._sums = torch.zeros(len(METHODS), rows, frames, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, made: Tensor, past: Tensor, truth: Tensor) -> None:
        """Add clips: what was made, from what, and what came: (n, C, T, H, W) in -1..1."""
        if not len(truth):
            return
        self._clips += len(truth)
        expected = _flat(truth)
        last = _flat(past[:, :, -1:].expand_as(truth))
        moving = (expected - last).abs().mean(1, keepdim=True)
        steep = steepness(expected, moving)
        for at, future in enumerate((made.clamp(-1, 1), *baselines(past, truth.shape[2]))):
            frames = _flat(future)
            found = torch.cat([
                measured(some, right)
                for some, right in zip(_blocks(frames), _blocks(expected), strict=True)
            ], 1)
            rows = torch.cat([found, steepness(frames, moving)[None], steep[None]])
            self._sums[at] += rows.view(len(rows), -1, self._frames).double().sum(1)

    def over(self, strategy: Strategy) -> Scores:
        """Return the means over the clips of all ranks."""
        *flat, clips = strategy.sum([*self._sums.flatten().tolist(), self._clips])
        table = torch.tensor(flat, dtype=torch.float64).view(self._sums.shape)
        means = table[:, :-2] / clips
        made, true = table[:, -2], table[:, -1]
        sharpness = torch.where(true > LEAST, made / true, 1.0)  # where nothing moves, all is sharp
        names = measures(self._size)
        return Scores(int(clips), self._size, {
            method: dict(zip(names, means[at].tolist(), strict=True))
            | {"sharpness": sharpness[at].tolist()}
            for at, method in enumerate(METHODS)
        })


def _blocks(frames: Tensor) -> tuple[Tensor, ...]:
    return frames.tensor_split(-(-len(frames) // BLOCK))


def _flat(clips: Tensor) -> Tensor:
    """Return the frames of clips (n, C, T, H, W) in -1..1 as (n * T, C, H, W) in 0..1."""
    return clips.float().transpose(1, 2).flatten(0, 1).add(1).div(2)
