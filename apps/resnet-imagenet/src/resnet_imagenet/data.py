"""Batches for training and evaluation: which samples, in which order, with which random draws.

The order of an epoch is a permutation seeded by (seed, epoch), and the draws of a
batch are seeded by (seed, epoch, step). So any batch can be made again from three
numbers: a resumed training needs no state of the input pipeline, every sample
comes exactly once per epoch, and ranks share a global batch by slicing it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resnet_imagenet.bad import BadRecords, Sample, undecodable
from resnet_imagenet.pipelines import Preprocessing, Way
from resnet_imagenet.producer import IN_FLIGHT, Batch, Producer, lanes
from resnet_imagenet.sizes import ImageSizes
from resnet_imagenet.windows import DRAWS
from trainkit.data.dataset import Dataset, Records
from trainkit.torch.strategy import TorchStrategy

Where = tuple[int, int]  # epoch, step
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

    def share(self, step: int, rank: int, ranks: int) -> slice:
        """Return which part of the global batch of `step` is that of `rank`.

        The last batch is spread evenly: it may be one sample fewer for some ranks, or none.
        """
        count = min(self.batch, self.samples - step * self.batch)
        share, more = divmod(count, ranks)  # as torch.tensor_split parts a batch
        first = rank * share + min(rank, more)
        return slice(first, first + share + (rank < more))

    def draws(self, epoch: int, step: int) -> NDArray[np.float32]:
        """Return the uniform draws of a global batch, (batch, DRAWS)."""
        generator = np.random.default_rng((self.seed, epoch, step))
        return generator.random((self.batch, DRAWS), np.float32)


class Loader:
    """Batches of a data set, prepared in the background.

    Args:
        records: the samples of a split.
        to: the wanted tensors.
        way: training or evaluation, device, threads.
        batch_per_rank: the last batch of an epoch may have fewer.
        seed: seeds order and augmentation.
        strategy: who else reads the same batches; each rank takes its slice.
        sizes: the size of the training images by epoch, where it is not `to.size` always.
        bad: counts records that cannot be decoded; without it the first one is an error.
            The next record in the data set that can be decoded takes the place of a bad
            one, with the random draws of the bad one: so all other samples stay as they
            are, on any number of ranks and after a resume.
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
        self.plan = Plan(len(records), batch_per_rank * strategy.size, seed, way.training)
        self.samples, self.steps = self.plan.samples, self.plan.steps
        self._records, self._to, self._way, self._strategy = records, to, way, strategy
        self._batch, self._sizes = batch_per_rank, sizes
        self._device = f"cuda:{way.device_id}" if way.device == "gpu" else "cpu"
        self._bad = bad or BadRecords()
        self._replaced: dict[Where, dict[int, int]] = {}
        self._recent: deque[tuple[Where, NDArray[np.int64]]] = deque(maxlen=IN_FLIGHT)
        self._producer: Producer | None = None
        self._next: Where = (-1, -1)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield (images (N, C, H, W) channels_last, labels (N,)) of `epoch` from step `first` on.

        Raises:
            DataError: a record cannot be decoded, and no more are tolerated; or it is
                malformed, or its label is none. The message names it.
        """
        epoch = epoch if self._way.training else 0
        resized = self._resize(epoch)
        if self._next != (epoch, first) or resized:
            self._start(epoch, first)
        for step in range(first, self.steps):
            self._next = (epoch, step)
            share = self._share(step)
            batch = self._run() if share.stop > share.start else self._nothing()
            # Before the yield: who takes all batches need not ask for one more.
            self._next = (epoch, step + 1) if step + 1 < self.steps else self._after(epoch)
            yield batch

    def _after(self, epoch: int) -> Where:
        """Return where the batches after those of `epoch` begin."""
        return (epoch + 1 if self._way.training else 0, 0)

    def _resize(self, epoch: int) -> bool:
        """Set the size of the images of `epoch`; return whether it is another one."""
        size = self._sizes.at(epoch) if self._sizes else self._to.size
        changed = size != self._to.size
        self._to = dataclasses.replace(self._to, size=size)
        return changed

    def _start(self, epoch: int, first: int) -> None:
        if self._producer is not None:
            self._producer.close()
        self._recent.clear()
        count = lanes(self._to, self._way)
        sources = [self._source(epoch, first, lane, count) for lane in range(count)]
        self._producer = Producer(self._to, sources, self._way, batch=self._batch)

    def _source(self, epoch: int, first: int, lane: int, of: int) -> Iterator[Any]:
        """Yield this rank's slices of the global batches, epoch after epoch, without end.

        Of every `of` slices, the one whose turn is `lane`.
        """
        turns = itertools.cycle(range(of))
        while True:
            order = self.plan.order(epoch)
            for step in range(first, self.steps):
                start = step * self.plan.batch
                numbers = order[start : start + self.plan.batch][self._share(step)].copy()
                if not len(numbers) or next(turns) != lane:
                    continue
                for row, number in self._replaced.get((epoch, step), {}).items():
                    numbers[row] = number
                self._recent.append(((epoch, step), numbers))
                yield self._inputs((epoch, step), numbers)
            epoch, first = self._after(epoch)

    def _share(self, step: int) -> slice:
        return self.plan.share(step, self._strategy.rank, self._strategy.size)

    def _inputs(self, where: Where, numbers: NDArray[np.int64]) -> tuple[Any, ...]:
        """Return encoded images and labels, for training with draws, as the pipeline wants them."""
        chosen = numbers.tolist()
        encoded = [self._records.encoded(number) for number in chosen]
        labels = np.array([[self._records.label(number)] for number in chosen], np.int64)
        if not self._way.training:
            return encoded, labels
        return encoded, labels, self.plan.draws(*where)[self._share(where[1])]

    def _nothing(self) -> Batch:
        """Return a batch of no images, for a rank that has no share of the last batch."""
        shape = (0, self._to.channels, self._to.size, self._to.size)
        return torch.empty(shape, device=self._device), torch.empty(
            0, dtype=torch.int64, device=self._device
        )

    def _run(self) -> Batch:
        """Return the next batch; replace records that cannot be decoded."""
        while True:
            assert self._producer is not None  # noqa: S101 - `epoch` started it
            try:
                return self._producer.next()
            except RuntimeError:
                if not self._replace():
                    raise  # not for a record's sake
                self._start(*self._next)

    def _replace(self) -> bool:
        """Find substitutes for the bad records of the last batches; return whether any is bad."""
        some = False
        for where, numbers in sorted(self._recent, key=itemgetter(0)):
            samples = [self._sample(where, row, n) for row, n in enumerate(numbers.tolist())]
            for row, text in undecodable(self._to, self._way, samples):
                some = True
                substitute = self._substitute(where, row, int(numbers[row]), text)
                self._replaced.setdefault(where, {})[row] = substitute
        return some

    def _substitute(self, where: Where, row: int, number: int, text: str) -> int:
        """Return the first record after the bad one that can be decoded with its draws."""
        while True:
            self._bad.add(f"{self._records.describe(number)} {text}")
            number = (number + 1) % self.samples
            found = list(undecodable(self._to, self._way, [self._sample(where, row, number)]))
            if not found:
                return number
            text = found[0][1]

    def _sample(self, where: Where, row: int, number: int) -> Sample:
        draws = self.plan.draws(*where)[self._share(where[1])][row]
        return self._records.encoded(number), np.array([self._records.label(number)]), draws


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
