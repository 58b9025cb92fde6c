"""Scores of frames match scikit-image, and their means over batches and ranks are correct."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from skimage.transform import downscale_local_mean

from futuregan import scores
from futuregan.scores import ScoreSums
from trainkit.torch.strategy import TorchStrategy

WINDOW = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
"""The SSIM window of Wang et al. 2004, as arguments of scikit-image."""


def pairs(size: int, channels: int = 3, count: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy frames and the smooth frames without the noise, (count, C, H, W) in 0..1."""
    draw = torch.Generator().manual_seed(size)
    small = torch.rand(count, channels, 4, 4, generator=draw)
    truth = torch.nn.functional.interpolate(small, size, mode="bilinear")
    noise = 0.1 * torch.randn(truth.shape, generator=draw)
    return (truth + noise).clamp(0, 1), truth


def similarity(one: NDArray[np.float32], other: NDArray[np.float32], **more: float) -> float:
    """Return scikit-image's SSIM of two frames (C, H, W) in 0..1."""
    return float(structural_similarity(
        one, other, data_range=1.0, channel_axis=0, **WINDOW, **more
    ))


@pytest.mark.parametrize(("size", "channels"), [(16, 3), (32, 1), (64, 3), (128, 3)])
def test_each_measure_is_that_of_scikit_image(size: int, channels: int) -> None:
    frames, truth = pairs(size, channels)
    errors, ratios, similarities, over_scales = scores.measure_frames(frames, truth)
    for at, (one, other) in enumerate(zip(frames.numpy(), truth.numpy(), strict=True)):
        assert errors[at] == pytest.approx(np.mean((one - other) ** 2), rel=1e-4)
        assert ratios[at] == pytest.approx(
            peak_signal_noise_ratio(other, one, data_range=1.0), abs=1e-3)
        assert similarities[at] == pytest.approx(similarity(one, other), abs=1e-4)
        product, weights = 1.0, scores.WEIGHTS[: scores.scales(size)]
        for scale, weight in enumerate(weights):
            last = scale == len(weights) - 1
            # Without its first factor, of brightness, SSIM is contrast and structure.
            found = similarity(one, other, **({} if last else {"K1": 1e6}))
            product *= max(found, 0.0) ** (weight / sum(weights))
            one, other = (downscale_local_mean(frame, (1, 2, 2)) for frame in (one, other))
        assert over_scales[at] == pytest.approx(product, abs=2e-3)


@pytest.mark.parametrize(
    ("size", "scales"), [(8, 0), (16, 1), (32, 2), (128, 4), (256, 5), (512, 5)]
)
def test_small_frames_have_fewer_scales_and_the_smallest_no_similarity(
    size: int, scales: int
) -> None:
    assert scores.scales(size) == scales
    assert ("ssim" in scores.measures(size)) == (scales > 0)


def test_equal_frames_have_the_best_scores() -> None:
    _, truth = pairs(32)
    found = scores.measure_frames(truth, truth)
    assert found[:2].tolist() == [[0.0, 0.0], [pytest.approx(100.0)] * 2]
    assert found[2:].flatten().tolist() == pytest.approx([1.0] * 4)


def sharpness(made: torch.Tensor, past: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the sharpness score of predicted frames; all frames are (1, C, T, H, W) in -1..1."""
    sums = ScoreSums(truth.shape[-1], truth.shape[2], torch.device("cpu"))
    sums.add(made, past, truth)
    return sums.mean_over(TorchStrategy()).mean("prediction", "sharpness")


def street(place: int) -> torch.Tensor:
    """Return a frame (1, 1, 1, 32, 32) with a bar at column `place` above a striped street."""
    frame = torch.zeros(1, 1, 1, 32, 32)
    frame[..., 20:, ::2] = 0.8
    frame[..., 4:12, place : place + 4] = 1
    return frame


def test_sharpness_is_that_of_what_moves_and_not_of_what_stands_still() -> None:
    """The sharpness of a predicted frame depends only on the regions that move.

    A bar moves above sharp stripes that stand still. The sharpness is lower if the bar is blurred,
    or if the frame is the mean of two possible futures, although the stripes stay sharp.
    """
    past, truth = street(4).expand(-1, -1, 2, -1, -1), street(14)
    blurred = truth.clone()
    blurred[..., :16, :] = torch.nn.functional.avg_pool3d(
        truth, (1, 5, 5), 1, (0, 2, 2), count_include_pad=False)[..., :16, :]
    other = truth.clone()
    other[..., 20:, :] = 0.4  # nothing moves there
    assert sharpness(truth, past, truth) == pytest.approx(1)
    assert sharpness(other, past, truth) == pytest.approx(1, abs=0.02)
    assert sharpness((truth + street(18)) / 2, past, truth) < 0.8
    assert sharpness(blurred, past, truth) < 0.6
    assert sharpness(truth + 0.2 * torch.randn_like(truth), past, truth) > 1.1
    assert sharpness(truth, truth.expand(-1, -1, 2, -1, -1), truth) == 1  # nothing moves at all


def test_sharpness_of_frames_is_a_weighted_mean_written_down_by_hand() -> None:
    past = torch.tensor([[0.0, 0.0], [0.0, 0.0]]).view(1, 1, 1, 2, 2).expand(-1, -1, 2, -1, -1)
    truth = torch.tensor([[1.0, 0.0], [0.5, 0.0]]).view(1, 1, 1, 2, 2)
    made = torch.tensor([[0.5, 0.0], [0.5, 0.25]]).view(1, 1, 1, 2, 2)
    # Changes, half of the values of -1..1: .5 0 .25 0; differences down .25 0, across .5 .25;
    # those of what is made: down 0 .125, across .25 .125.
    expected = (0.375 * 0.25 + 0 + 0.25 * 0.5 + 0.125 * 0.25)
    found = 0.375 * 0 + 0 * 0.125 + 0.25 * 0.25 + 0.125 * 0.125
    assert sharpness(made, past, truth) == pytest.approx(found / expected)


def test_what_needs_no_training_repeats_the_last_frame_or_goes_on_with_its_change() -> None:
    past = torch.tensor([-0.4, 0.0, 0.3]).view(1, 1, 3, 1, 1)
    repeated, linear = scores.baselines(past, 3)
    assert repeated.flatten().tolist() == pytest.approx([0.3, 0.3, 0.3])
    assert linear.flatten().tolist() == pytest.approx([0.6, 0.9, 1.0])  # frames end at 1


def clips(count: int, seed: int) -> torch.Tensor:
    """Return random clips of six frames, (count, 1, 6, 16, 16) in -1..1."""
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 6, 16, 16, generator=draw) * 2 - 1


def test_batches_of_any_size_have_the_same_means() -> None:
    real, made = clips(5, 0), clips(5, 1)[:, :, 3:]
    found = []
    for cuts in ([5], [2, 3], [1, 4, 0]):
        sums = ScoreSums(16, 3, torch.device("cpu"))
        for one, other in zip(real.split(cuts), made.split(cuts), strict=True):
            sums.add(other, one[:, :, :3], one[:, :, 3:])
        found.append(sums.mean_over(TorchStrategy()))
    assert [one.clips for one in found] == [5, 5, 5]
    for one in found[1:]:
        for method, measures in found[0].frames.items():
            for measure, values in measures.items():
                assert one.frames[method][measure] == pytest.approx(values, rel=1e-5)
    error = (made - real[:, :, 3:]).div(2).square().mean((0, 1, 3, 4))
    assert found[0].frames["prediction"]["mse"] == pytest.approx(error.tolist(), rel=1e-5)


class TwoRanks(TorchStrategy):
    """The strategy of two ranks that have the same clips."""

    def sum(self, values: list[float]) -> list[float]:
        return [2 * value for value in values]


def test_ranks_are_summed_before_the_mean() -> None:
    real = clips(3, 0)
    sums = ScoreSums(16, 3, torch.device("cpu"))
    sums.add(real[:, :, 3:], real[:, :, :3], real[:, :, 3:])
    alone, together = sums.mean_over(TorchStrategy()), sums.mean_over(TwoRanks())
    assert together.clips == 2 * alone.clips
    assert together.frames == alone.frames


def test_the_margin_is_over_the_better_of_what_needs_no_training() -> None:
    sums = ScoreSums(16, 3, torch.device("cpu"))
    real = clips(2, 0)
    sums.add(real[:, :, 3:] * 0.9, real[:, :, :3], real[:, :, 3:])
    found = sums.mean_over(TorchStrategy())
    best = max(found.mean("copy_last", "psnr"), found.mean("linear", "psnr"))
    assert found.margin("psnr") == pytest.approx(found.mean("prediction", "psnr") - best)
    assert math.isclose(found.mean("prediction", "sharpness"), 0.9, rel_tol=1e-5)
