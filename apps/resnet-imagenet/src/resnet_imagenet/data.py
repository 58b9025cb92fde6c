"""Batches for training and evaluation: images of a data set, or random ones, as tensors.

Which samples make a batch, in which order and with which draws, says `trainkit.data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from resnet_imagenet.defects import Sample, undecodable
from resnet_imagenet.pipelines import Preprocessing, Way
from resnet_imagenet.producer import IN_FLIGHT, Batch, Producer, lanes
from resnet_imagenet.sizes import ImageSizes
from resnet_imagenet.windows import DRAWS
from trainkit.data import loader
from trainkit.data.bad import BadRecords, UndecodableError
from trainkit.data.dataset import Dataset
from trainkit.data.loader import Share
from trainkit.data.records import Records
from trainkit.torch.strategy import TorchStrategy

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
class Making:
    """How encoded images become (images (N, C, H, W) channels_last, labels (N,)), by DALI.

    `trainkit.data.loader.Making`.

    Attributes:
        records: the samples of a split.
        to: the wanted tensors.
        way: training or evaluation, device, threads.
        batch: the largest N.
        sizes: the size of the training images by epoch, where it is not `to.size` always.
    """

    records: Records
    to: Preprocessing
    way: Way
    batch: int
    sizes: ImageSizes | None
    in_flight = IN_FLIGHT

    @property
    def lanes(self) -> int:
        """Return how many pipelines share the threads."""
        return lanes(self.to, self.way)

    @property
    def draws(self) -> int:
        """Return the draws that an image needs; the centre of one needs none."""
        return DRAWS if self.way.training else 0

    def at(self, epoch: int) -> Making:
        """Return the same with the size of the images of `epoch`."""
        size = self.sizes.at(epoch) if self.sizes else self.to.size
        return dataclasses.replace(self, to=dataclasses.replace(self.to, size=size))

    def start(self, lanes: Sequence[Iterator[Share]]) -> Producer:
        """Begin to make batches of the shares of `lanes`."""
        sources = [map(self._inputs, lane) for lane in lanes]
        return Producer(self.to, sources, self.way, batch=self.batch)

    def nothing(self) -> Batch:
        """Return a batch of no images."""
        device = f"cuda:{self.way.device_id}" if self.way.device == "gpu" else "cpu"
        images = torch.empty((0, self.to.channels, self.to.size, self.to.size), device=device)
        return images, torch.empty(0, dtype=torch.int64, device=device)

    def undecodable(self, share: Share) -> Iterator[tuple[int, str]]:
        """Yield row and defect of the images that the pipeline cannot process."""
        rows: list[int] = []
        samples: list[Sample] = []
        for row, number in enumerate(share.numbers.tolist()):
            try:
                encoded = self.records.encoded(number)
            except UndecodableError as error:
                yield row, error.defect
                continue
            rows.append(row)
            label = np.array([self.records.label(number)])
            samples.append((encoded, label, share.draws[row]))
        if samples:
            found = undecodable(self.to, self.way, samples)
            yield from ((rows[at], defect) for at, defect in found)

    def _inputs(self, share: Share) -> tuple[Any, ...]:
        """Return encoded images and labels, for training with draws, as the pipeline wants them."""
        chosen = share.numbers.tolist()
        encoded = [self.records.encoded(number) for number in chosen]
        labels = np.array([[self.records.label(number)] for number in chosen], np.int64)
        return (encoded, labels, share.draws) if self.way.training else (encoded, labels)


class Loader(loader.Loader[Batch]):
    """Batches of (images (N, C, H, W) channels_last, labels (N,)), prepared in the background.

    The arguments are those of `Making` and of `trainkit.data.loader.Loader`.
    """

    def __init__(
        self,
        records: Records,
        to: Preprocessing,
        way: Way,
        *,
        batch_per_rank: int,
        seed: int,
        strategy: TorchStrategy,
        sizes: ImageSizes | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        super().__init__(
            records, Making(records, to, way, batch_per_rank, sizes), training=way.training,
            batch_per_rank=batch_per_rank, seed=seed, strategy=strategy, bad=bad,
        )


class Synthetic:
    """One random batch again and again, already on the device: pure compute, no input pipeline."""

    def __init__(
        self,
        to: Preprocessing,
        *,
        classes: int,
        batch: int,
        samples: int,
        seed: int,
        strategy: TorchStrategy,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, to.channels, to.size, to.size)
        images = torch.randn(shape, generator=generator)
        self._images = images.to(strategy.device, memory_format=torch.channels_last)
        self._labels = torch.randint(classes, (batch,), generator=generator)
        self._labels = self._labels.to(strategy.device)
        self.steps = max(1, samples // (batch * strategy.size))
        self.samples = self.steps * batch * strategy.size  # whole batches only

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same images (N, C, H, W) and labels (N,) for every step from `first` on."""
        for _ in range(first, self.steps):
            yield self._images, self._labels
