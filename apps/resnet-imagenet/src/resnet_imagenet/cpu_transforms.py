"""The last steps of the input pipeline on a CPU: convert decoded windows to tensors.

PyTorch's antialiased bilinear resize of bytes gives the same result as Pillow's, and uses vector
instructions. Each image is resized and normalized while it is in the processor cache, and written
directly into its batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.dlpack import from_dlpack

from resnet_imagenet.pipelines import Preprocessing


class CpuTransforms:
    """A function that resizes, flips and normalizes batches of images on `threads` threads.

    `to` specifies the size and the normalization.
    """

    def __init__(self, to: Preprocessing, threads: int) -> None:
        self._size, self._channels, self._threads = to.size, to.channels, threads
        # Scale and offset of (x / 255 - mean) / std, repeated for all values of a row of pixels.
        std = torch.tensor(to.std, dtype=torch.float64)
        shift = -torch.tensor(to.mean, dtype=torch.float64) / std
        self._scale = (1 / (255 * std)).float().repeat(to.size)
        self._shift = shift.float().repeat(to.size)
        self._pool = single_threaded_pool(threads)

    def __call__(self, images: Sequence[Any], mirror: Sequence[int]) -> Tensor:
        """Return float images (N, C, H, W), channels_last.

        Args:
            images: arrays of bytes (h, w, C) that support DLPack.
            mirror: for each image, 1 to flip it, else 0.
        """
        batch = torch.empty(len(images), self._size, self._size * self._channels)

        def finish(first: int) -> None:
            for number in range(first, len(images), self._threads):
                self._finish(from_dlpack(images[number]), mirror[number], batch[number])

        list(self._pool.map(finish, range(self._threads)))
        return batch.view(-1, self._size, self._size, self._channels).permute(0, 3, 1, 2)

    def _finish(self, image: Tensor, mirror: int, out: Tensor) -> None:
        size = (self._size, self._size)
        if image.shape[:2] != size:
            pixels = image[None].permute(0, 3, 1, 2)  # channels_last, without a copy
            pixels = functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
            image = pixels.permute(0, 2, 3, 1)[0]
        if mirror:
            image = image.flip(1)
        out.copy_(image.reshape(out.shape)).mul_(self._scale).add_(self._shift)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def single_threaded_pool(count: int) -> ThreadPoolExecutor:
    """Return a pool of `count` threads in which PyTorch uses no further threads.

    Otherwise each thread would start an OpenMP team for large operations, which would busy-wait on
    the cores that train. OpenMP keeps its number of threads for each calling thread, but MKL has
    one number for the whole process; this function restores it.
    """
    before = torch.get_num_threads()
    ready = threading.Barrier(count + 1)

    def begin() -> None:
        torch.get_num_threads()  # the first call copies the setting of the process
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(count, "finish", initializer=begin)
    for _ in range(count):
        pool.submit(int)
    ready.wait()
    torch.set_num_threads(before)
    return pool
