"""Batches for training and evaluation: which samples, in which order, with which random draws.

The order of an epoch is a permutation seeded by (seed, epoch), and the draws of a
batch are seeded by (seed, epoch, step). So any batch can be made again from three
numbers: a resumed training needs no state of the input pipeline, every sample
comes exactly once per epoch, and ranks share a global batch by slicing it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.utils.dlpack
from numpy.typing import NDArray
from torch import Tensor

from resnet_imagenet import pipelines
from resnet_imagenet.dataset import Bytes, Dataset, Records
from resnet_imagenet.pipelines import DRAWS, Preprocessing
from trainkit.engine import Engine
from trainkit.exits import DataError

SMALL = 64  # images of one size up to this many pixels are used whole
PHOTOGRAPH = 224


class Batches(Protocol):
    """What the loop needs from a source of batches."""

    samples: int
    steps: int

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images (N, C, H, W) channels_last, labels (N,)) from step `first` on."""
        ...


def preprocessing(dataset: Dataset, size: int | None) -> Preprocessing:
    """Return how the images of `dataset` become tensors of `size` (default: as is, or 224)."""
    native = None
    if dataset.height and dataset.width and max(dataset.height, dataset.width) <= SMALL:
        native = (dataset.height, dataset.width)
    default = max(native) if native else PHOTOGRAPH
    return Preprocessing(dataset.channels, size or default, dataset.mean, dataset.std, native)


@dataclass(frozen=True)
class Plan:
    """Which samples make up a batch; the same on every rank, each takes its slice."""

    samples: int
    batch: int
    seed: int
    training: bool

    @property
    def steps(self) -> int:
        """Return the batches of an epoch; the last one may be smaller."""
        return -(-self.samples // self.batch)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the sample numbers of `epoch` in order."""
        if not self.training:
            return np.arange(self.samples)
        return np.random.default_rng((self.seed, epoch)).permutation(self.samples)

    def draws(self, epoch: int, step: int) -> NDArray[np.float32]:
        """Return the uniform draws of a global batch, (batch, DRAWS)."""
        generator = np.random.default_rng((self.seed, epoch, step))
        return generator.random((self.batch, DRAWS), np.float32)


class Loader:
    """Batches of a packed data set through DALI, prepared in the background."""

    def __init__(
        self,
        records: Records,
        to: Preprocessing,
        *,
        batch_per_rank: int,
        seed: int,
        threads: int,
        training: bool,
        engine: Engine,
    ) -> None:
        self.plan = Plan(len(records), batch_per_rank * engine.size, seed, training)
        self.samples, self.steps = self.plan.samples, self.plan.steps
        self._records, self._to, self._engine = records, to, engine
        self._batch, self._threads, self._training = batch_per_rank, threads, training
        self._recent: deque[NDArray[np.int64]] = deque(maxlen=pipelines.QUEUE + 2)
        self._pipe: Any = None
        self._next = (-1, -1)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images (N, C, H, W) channels_last, labels (N,)) of `epoch` from step `first` on.

        Raises:
            DataError: a record cannot be decoded; the message names it.
        """
        epoch = epoch if self._training else 0
        if self._next != (epoch, first):
            self._start(epoch, first)
        for step in range(first, self.steps):
            self._next = (epoch, step + 1)
            yield self._run()
        self._next = (epoch + 1 if self._training else 0, 0)

    def _start(self, epoch: int, first: int) -> None:
        self._pipe = pipelines.pipeline(
            self._to,
            self._source(epoch, first),
            batch=self._batch,
            threads=self._threads,
            training=self._training,
        )

    def _source(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield this rank's slices of the global batches, epoch after epoch, without end."""
        while True:
            order = self.plan.order(epoch)
            for step in range(first, self.steps):
                start = step * self.plan.batch
                numbers = order[start : start + self.plan.batch]
                mine = np.array_split(np.arange(len(numbers)), self._engine.size)[self._engine.rank]
                inputs = self._inputs(numbers[mine])
                yield (*inputs, self.plan.draws(epoch, step)[mine]) if self._training else inputs
            epoch, first = epoch + 1 if self._training else 0, 0

    def _inputs(self, numbers: NDArray[np.int64]) -> tuple[list[Bytes], NDArray[np.int64]]:
        self._recent.append(numbers)
        chosen = numbers.tolist()
        encoded = [self._records.encoded(number) for number in chosen]
        labels = np.array([[self._records.label(number)] for number in chosen], np.int64)
        return encoded, labels

    def _run(self) -> tuple[Tensor, Tensor]:
        try:
            images, labels = self._pipe.run()
        except RuntimeError as error:
            raise self._explain(error) from error
        # Copies, because DALI uses its buffers again; NHWC in memory is torch's channels_last.
        pixels = torch.utils.dlpack.from_dlpack(images.as_tensor()).clone().permute(0, 3, 1, 2)
        return pixels, torch.utils.dlpack.from_dlpack(labels.as_tensor()).flatten().clone()

    def _explain(self, error: RuntimeError) -> Exception:
        """Return an error that names the record: the first of the last batches that fails alone."""
        for numbers in self._recent:
            for number in numbers.tolist():
                defect = pipelines.defect(self._records.encoded(number))
                if defect is not None:
                    return DataError(f"{self._records.describe(number)} {defect}")
        return error


class Synthetic:
    """One random batch again and again, already in memory: pure compute, no input pipeline."""

    def __init__(
        self, to: Preprocessing, *, classes: int, batch: int, samples: int, seed: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, to.channels, to.size, to.size)
        images = torch.randn(shape, generator=generator)
        self._images = images.contiguous(memory_format=torch.channels_last)
        self._labels = torch.randint(classes, (batch,), generator=generator)
        self.samples, self.steps = samples, max(1, samples // batch)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same images (N, C, H, W) and labels (N,) for every step from `first` on."""
        for _ in range(first, self.steps):
            yield self._images, self._labels
