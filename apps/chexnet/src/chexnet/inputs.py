"""Read images of a packed data set by `tf.data`, decode and augment them, and batch them per rank.

The order of an epoch, and the random draws of the augmentation, depend only on seed, epoch and step
(`trainkit.data.order`). Therefore a training resumes within an epoch with the same images, and any
number of ranks can share a batch. Records are views of memory-mapped files, which the operating
system caches. They are read equally fast in any order, so that shards need no interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from chexnet import crops
from chexnet.settings import TrainSettings
from trainkit.data.dataset import Dataset, open_dataset
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.strategy import Strategy
from trainkit.tensorflow import encoded
from trainkit.tensorflow.encoded import decodable, decode_error

SYNTHETIC = 1024  # number of images


@dataclass(frozen=True)
class Batch:
    """The share of one rank in a global batch.

    Attributes:
        images: values 0..255, (n, size, size, channels).
        labels: 1 for each finding of an image, else 0, (n, findings).
        count: number of images of all ranks in the batch.
    """

    images: tf.Tensor
    labels: tf.Tensor
    count: int


class Source(encoded.Source, Protocol):
    """A collection of labelled images, numbered from 0."""

    def vector(self, number: int) -> NDArray[np.float32]:
        """Return 1 for each finding of an image, else 0, (findings,)."""
        ...


class Synthetic:
    """One random image with random findings, to measure the throughput of compute only."""

    def __init__(self, size: int, findings: int, samples: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        pixels = draw.integers(0, 256, (size, size, 3), np.uint8)
        self._image = np.frombuffer(tf.io.encode_jpeg(pixels).numpy(), np.uint8)
        self._labels = draw.integers(0, 2, (samples, findings)).astype(np.float32)

    def __len__(self) -> int:
        return len(self._labels)

    def encoded(self, number: int) -> Any:
        """Return the bytes of a JPEG file."""
        return self._image

    def vector(self, number: int) -> NDArray[np.float32]:
        """Return 1 for each finding of an image, else 0, (findings,)."""
        found: NDArray[np.float32] = self._labels[number]
        return found

    def describe(self, number: int) -> str:
        """Return a text that identifies an image, for messages."""
        return f"synthetic image {number}"


class Loader:
    """Batches of images.

    Args:
        source: the images.
        size: side of an image, in pixels.
        channels: number of channels, 1 or 3.
        plan: order and batches of the images.
        strategy: the ranks, each of which gets its share of a batch.
        augment: whether to mirror, shift and scale the images at random.
        crop: "whole" for the whole image; "random" for random crops of photographs with `augment`,
            and centre crops without it.
        windows: k boxes that are all cropped from each image, (k, 4); None if each image gives one
            window.
        decoders: number of images that are decoded in parallel.

    Raises:
        DataError: there are fewer images than ranks.
    """

    def __init__(
        self, source: Source, *, size: int, channels: int, plan: Plan, strategy: Strategy,
        augment: bool, decoders: int, windows: NDArray[np.float32] | None = None,
        crop: str = "whole",
    ) -> None:
        if len(source) < strategy.size:
            raise DataError(
                f"{len(source)} images are too few for {strategy.size} ranks", code="data-too-small"
            )
        self.plan, self.source = plan, source
        self._size, self._channels, self._augment = size, channels, augment
        self._strategy, self._decoders, self._windows = strategy, decoders, windows
        self._crop = crop

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield this rank's share of each batch of `epoch`, beginning with step `first`.

        Raises:
            DataError: an image cannot be decoded; the message names it.
        """
        numbers, draws, shares = self._epoch_plan(epoch, first)
        batches = iter(self._pipeline(numbers, draws))
        at = 0
        for count, own in shares:
            try:
                images, labels = next(batches) if own else self._empty()
            except tf.errors.OpError as error:
                fault = decode_error(self.source, numbers[at:], self._channels)
                raise fault or DataError(
                    str(error).splitlines()[0], code="image-undecodable"
                ) from error
            at += own
            yield Batch(images, labels, count)

    def vectors(self) -> NDArray[np.float32]:
        """Return the labels of all images, (samples, findings)."""
        return np.stack([self.source.vector(number) for number in range(len(self.source))])

    def _epoch_plan(
        self, epoch: int, first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], list[tuple[int, int]]]:
        """Return the images that this rank reads in an epoch, beginning with step `first`.

        Returns:
            The numbers of these images, their random draws, and for each step the number of images
            of all ranks and of this rank.
        """
        order, plan = self.plan.order(epoch), self.plan
        numbers, draws, shares = [], [], []
        for step in range(first, plan.steps):
            batch = order[step * plan.batch : (step + 1) * plan.batch]
            own = plan.share(step, self._strategy.rank, self._strategy.size)
            numbers.append(batch[own])
            draws.append(plan.draws(epoch, step, crops.DRAWS[self._crop])[own])
            shares.append((len(batch), len(batch[own])))
        return np.concatenate(numbers), np.concatenate(draws), shares

    def _pipeline(self, numbers: NDArray[np.int64], draws: NDArray[np.float32]) -> tf.data.Dataset:
        own = self.plan.batch // self._strategy.size
        found = tf.data.Dataset.from_tensor_slices((numbers, draws))
        found = found.map(self._read)
        found = found.map(self._decoded, num_parallel_calls=self._decoders, deterministic=True)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self._decoders
        return found.batch(own).prefetch(2).with_options(options)

    def _read(self, number: tf.Tensor, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        def read(wanted: Any) -> tuple[bytes, NDArray[np.float32]]:
            content = decodable(bytes(self.source.encoded(int(wanted))))
            return content, self.source.vector(int(wanted))

        content, labels = tf.numpy_function(read, [number], [tf.string, tf.float32], stateful=False)
        return content, labels, draws

    def _decoded(
        self, content: tf.Tensor, labels: tf.Tensor, draws: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_image(content, self._channels, expand_animations=False)
        box = self._box(draws, tf.shape(image))
        boxes = box[None] if self._windows is None else tf.constant(self._windows)
        pixels = crops.crop_and_resize(image, boxes, self._size)
        labels.set_shape([len(self.source.vector(0))])
        return pixels[0] if self._windows is None else pixels, labels

    def _box(self, draws: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        if self._crop == "random":
            return crops.random_crop(draws, shape) if self._augment else crops.centre_crop(shape)
        return crops.random_window(draws) if self._augment else tf.constant(crops.WHOLE)

    def _empty(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return an empty batch, for a rank without an image in the last batch."""
        return (tf.zeros((0, self._size, self._size, self._channels), tf.uint8),
                tf.zeros((0, len(self.source.vector(0)))))


@dataclass(frozen=True)
class Inputs:
    """The batches of a training.

    Attributes:
        name: fingerprint of the data set, or "synthetic".
        findings: names of the findings.
        exclusive: whether each image has exactly one of the findings, as with classes of ImageNet.
        train: batches to train on.
        evaluation: batches to evaluate on.
        test: batches to evaluate on after the training; None without `--test`.
        packed: width and height of all packed images; None if the images differ in size.
    """

    name: str
    findings: tuple[str, ...]
    exclusive: bool
    train: Loader
    evaluation: Loader
    test: Loader | None
    packed: tuple[int, int] | None


def open_images(folder: Path) -> Dataset:
    """Return the data set in `folder`: images with any number of findings, or with one class each.

    Raises:
        DataError: the folder has no data set of such images.
    """
    return open_dataset(folder, labels=("multi", "class"))


def open_inputs(settings: TrainSettings, strategy: Strategy) -> Inputs:
    """Return the batches that `settings` specify.

    Raises:
        DataError: the data set is missing or damaged, or has too few images.
    """
    dataset = None if settings.data is None else open_images(settings.data)
    findings = tuple(dataset.classes) if dataset else tuple(f"finding {n}" for n in range(14))

    def loader(split: str, training: bool) -> Loader:
        source: Source = dataset.records(split) if dataset else Synthetic(
            settings.size, len(findings), SYNTHETIC, settings.seed
        )
        plan = Plan(len(source), settings.batch_size_per_rank * strategy.size, settings.seed,
                    training)
        return Loader(
            source, size=settings.size, channels=int(settings.channels), plan=plan,
            strategy=strategy, augment=training and settings.augment, decoders=settings.decoders,
            crop=settings.crop,
        )

    name = dataset.fingerprint() if dataset else "synthetic"
    held_out = dataset.evaluation_split() if dataset else ""
    exclusive = dataset is not None and dataset.kind.labels == "class"
    packed = None
    if dataset is not None and dataset.width is not None and dataset.height is not None:
        packed = dataset.width, dataset.height
    return Inputs(
        name, findings, exclusive, loader("train", True), loader(held_out, False),
        loader("test", False) if settings.test else None, packed,
    )
