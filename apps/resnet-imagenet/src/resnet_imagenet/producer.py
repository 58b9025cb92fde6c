"""Runs a pipeline in the background and hands out its batches as PyTorch tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resnet_imagenet import pipelines
from resnet_imagenet.host import Finisher
from resnet_imagenet.pipelines import Preprocessing, Way

AHEAD = 2  # finished batches that wait for the network
IN_FLIGHT = pipelines.QUEUE + AHEAD + 3
"""Batches, at most, that were taken from the source and not yet handed out."""

Batch = tuple[Tensor, Tensor]


class Producer:
    """Batches of (images (N, C, H, W) channels_last, labels (N,)) from a source.

    The arguments are those of `pipelines.pipeline`, and how many batches to finish `ahead`.
    """

    def __init__(
        self,
        to: Preprocessing,
        source: Iterator[Any],
        way: Way,
        *,
        batch: int,
        ahead: int = AHEAD,
    ) -> None:
        self._pipe = pipelines.pipeline(to, source, way, batch=batch)
        self._finisher = Finisher(to, way.threads) if way.device == "cpu" else None
        self._thread = ThreadPoolExecutor(1, "produce")  # one: the order stays
        self._limit = ahead
        self._ahead: deque[Future[Batch]] = deque()

    def next(self) -> Batch:
        """Return the next batch.

        Raises:
            RuntimeError: an image of it, or of one of the next `IN_FLIGHT` batches, cannot
                be decoded. The producer is of no use then.
        """
        while len(self._ahead) <= self._limit:
            self._ahead.append(self._thread.submit(self._produce))
        return self._ahead.popleft().result()

    def close(self) -> None:
        """End the threads, without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._finisher is not None:
            self._finisher.close()

    def _produce(self) -> Batch:
        if self._finisher is None:
            images, labels = self._pipe.run()
            # Copies, because DALI uses its buffers again.
            pixels = torch.from_dlpack(images.as_tensor()).clone().permute(0, 3, 1, 2)
            return pixels, torch.from_dlpack(labels.as_tensor()).flatten().clone()
        images, mirror, labels = self._pipe.run()
        flips = np.asarray(mirror.as_tensor()).ravel().tolist()
        pixels = self._finisher([images[n] for n in range(len(images))], flips)
        return pixels, torch.from_dlpack(labels.as_tensor()).flatten().clone()
