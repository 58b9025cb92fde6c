"""Batches of images as tensors, from a data set or of random values.

`trainkit.data` determines the order of the samples and their random draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from resnet_imagenet.crop_windows import DRAWS
from resnet_imagenet.defects import Sample, undecodable
from resnet_imagenet.image_size_schedule import ImageSizes
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.producer import IN_FLIGHT, Batch, Producer, lanes
from trainkit.data import loader
from trainkit.data.bad import BadRecords, UndecodableError
from trainkit.data.dataset import Dataset
from trainkit.data.loader import Share
from trainkit.data.records import Records
from trainkit.torch.strategy import TorchStrategy

SMALL = 64  # largest side, in pixels, of images of one size that are used whole
PHOTOGRAPH = 224


class Batches(Protocol):
    """The interface of a source of batches for the training loop."""

    samples: int
    steps: int

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images (N, C, H, W) channels_last, labels (N,)), beginning with step `first`."""
        ...


def preprocessing(dataset: Dataset, size: int | None) -> Preprocessing:
    """Return the preprocessing of a data set.

    Args:
        dataset: the data set.
        size: side of the network's input in pixels; None for 224, or for the size of small images.
    """
    native = None
    if dataset.height and dataset.width and max(dataset.height, dataset.width) <= SMALL:
        native = (dataset.height, dataset.width)
    default = max(native) if native else PHOTOGRAPH
    return Preprocessing(dataset.channels, size or default, dataset.mean, dataset.std, native)


@dataclass(frozen=True)
class Making:
    """Conversion of encoded images by DALI to (images (N, C, H, W) channels_last, labels (N,)).

    This class implements `trainkit.data.loader.Making`.

    Attributes:
        records: samples of a split.
        to: the preprocessing.
        options: training or evaluation, device, threads.
        batch: largest value of N.
        sizes: size of the training images in each epoch; None if it is always `to.size`.
    """

    records: Records
    to: Preprocessing
    options: PipelineOptions
    batch: int
    sizes: ImageSizes | None
    in_flight = IN_FLIGHT

    @property
    def lanes(self) -> int:
        """The number of lanes: pipelines with equal shares of the threads, used in turn."""
        return lanes(self.to, self.options)

    @property
    def draws(self) -> int:
        """The number of random draws for each image; 0 in an evaluation."""
        return DRAWS if self.options.training else 0

    def at(self, epoch: int) -> Making:
        """Return a copy of this converter of images with the image size of `epoch`."""
        size = self.sizes.at(epoch) if self.sizes else self.to.size
        return dataclasses.replace(self, to=dataclasses.replace(self.to, size=size))

    def start(self, lanes: Sequence[Iterator[Share]]) -> Producer:
        """Start a pipeline for each source in `lanes`, and return the producer of the batches."""
        sources = [map(self._inputs, lane) for lane in lanes]
        return Producer(self.to, sources, self.options, batch=self.batch)

    def nothing(self) -> Batch:
        """Return an empty batch."""
        device = f"cuda:{self.options.device_id}" if self.options.device == "gpu" else "cpu"
        images = torch.empty((0, self.to.channels, self.to.size, self.to.size), device=device)
        return images, torch.empty(0, dtype=torch.int64, device=device)

    def undecodable(self, share: Share) -> Iterator[tuple[int, str]]:
        """Yield (position in the batch `share`, defect) for each image that cannot be decoded."""
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
            found = undecodable(self.to, self.options, samples)
            yield from ((rows[at], defect) for at, defect in found)

    def _inputs(self, share: Share) -> tuple[Any, ...]:
        """Return the pipeline's inputs: encoded images, labels, and in training random numbers."""
        chosen = share.numbers.tolist()
        encoded = [self.records.encoded(number) for number in chosen]
        labels = np.array([[self.records.label(number)] for number in chosen], np.int64)
        return (encoded, labels, share.draws) if self.options.training else (encoded, labels)


class Loader(loader.Loader[Batch]):
    """Batches of (images (N, C, H, W) channels_last, labels (N,)), prepared in the background.

    The arguments are described in `Making` and in `trainkit.data.loader.Loader`.
    """

    def __init__(
        self,
        records: Records,
        to: Preprocessing,
        options: PipelineOptions,
        *,
        batch_per_rank: int,
        seed: int,
        strategy: TorchStrategy,
        sizes: ImageSizes | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        super().__init__(
            records, Making(records, to, options, batch_per_rank, sizes), training=options.training,
            batch_per_rank=batch_per_rank, seed=seed, strategy=strategy, bad=bad,
        )


class Synthetic:
    """One random batch on the device, repeated to measure compute without an input pipeline."""

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
        self.samples = self.steps * batch * strategy.size  # only full batches

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same images (N, C, H, W) and labels (N,) for every step from `first` on."""
        for _ in range(first, self.steps):
            yield self._images, self._labels
