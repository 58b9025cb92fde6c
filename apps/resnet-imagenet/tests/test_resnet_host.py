"""Compare resizing, flipping and normalization on a CPU with the same operations in floats."""

import threading

import numpy as np
import pytest
import torch
from torch.nn import functional

from resnet_imagenet import cpu_transforms
from resnet_imagenet.pipelines import Preprocessing

GREY = Preprocessing(1, 32, (0.4,), (0.2,), None)
COLOUR = Preprocessing(3, 32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), None)


@pytest.mark.parametrize("to", [GREY, COLOUR])
@pytest.mark.parametrize("threads", [1, 3])
def test_windows_become_normalized_tensors(to: Preprocessing, threads: int) -> None:
    generator = np.random.default_rng(1)
    shapes = [(75, 120), (32, 32), (20, 90), (9, 7), (32, 64)]
    images = [generator.integers(0, 256, (*shape, to.channels), np.uint8) for shape in shapes]
    mirror = [0, 1, 1, 0, 1]
    found = cpu_transforms.CpuTransforms(to, threads)(images, mirror)
    assert found.shape == (5, to.channels, 32, 32)
    assert found.is_contiguous(memory_format=torch.channels_last)
    for row, (image, flip) in enumerate(zip(images, mirror, strict=True)):
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
        pixels = functional.interpolate(pixels, size=(32, 32), mode="bilinear", antialias=True)[0]
        pixels = pixels.flip(2) if flip else pixels
        std, mean = torch.tensor(to.std)[:, None, None], torch.tensor(to.mean)[:, None, None]
        levels = ((found[row] * std + mean) * 255 - pixels).abs()
        assert levels.max() <= 1.01  # the bytes between the two passes are rounded


def test_its_threads_compute_alone_and_others_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pool = cpu_transforms.single_threaded_pool(3)
        barrier = threading.Barrier(3)

        def count(_: int) -> int:
            barrier.wait(10)
            return torch.get_num_threads()

        assert list(pool.map(count, range(3))) == [1, 1, 1]
        assert torch.get_num_threads() == 2
        pool.shutdown()
    finally:
        torch.set_num_threads(before)
