"""Read images of a packed data set by `tf.data`, and enlarge or reduce them to one size.

The order of an epoch depends only on seed and epoch (`trainkit.data.order`), so that a training
resumes within an epoch with the same images, and any number of ranks can share a batch. Images are
decoded and resized in each epoch, because CIFAR-10 at 128x128 has 16 times the pixels of its
files; resizing takes a small part of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from keras_resnet.settings import TrainSettings
from trainkit.data.dataset import open_dataset
from trainkit.data.order import Plan
from trainkit.tensorflow import encoded
from trainkit.tensorflow.encoded import decodable, decode_error

SYNTHETIC = 2048  # number of random images
CLASSES = 10  # of random images


class Source(encoded.Source, Protocol):
    """A numbered collection of images with one class each."""

    def label(self, number: int) -> int:
        """Return the class of an image."""
        ...


class Synthetic:
    """Repetitions of one random image, each with a random class.

    A training on them measures the throughput of the computation alone.
    """

    def __init__(self, size: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        pixels = draw.integers(0, 256, (size, size, 3), np.uint8)
        self._image = np.frombuffer(tf.io.encode_jpeg(pixels).numpy(), np.uint8)
        self._labels = draw.integers(0, CLASSES, SYNTHETIC)

    def __len__(self) -> int:
        return len(self._labels)

    def encoded(self, number: int) -> Any:
        """Return the bytes of a JPEG file."""
        return self._image

    def label(self, number: int) -> int:
        """Return the class of an image."""
        return int(self._labels[number])

    def describe(self, number: int) -> str:
        """Return the location of an image in words."""
        return f"synthetic image {number}"


@dataclass(frozen=True)
class Split:
    """The batches of one split.

    Attributes:
        source: the images.
        plan: order and batches of the images.
        size: side to which images are resized, in pixels.
        flip: whether half of the images are mirrored.
        decoders: number of images that are decoded in parallel.
    """

    source: Source
    plan: Plan
    size: int
    flip: bool
    decoders: int

    def batches(
        self, epoch: int = 0, first: int = 0, *, rank: int = 0, ranks: int = 1, replicas: int = 1
    ) -> tf.data.Dataset:
        """Return the batches of `epoch`, with those images that the rank `rank` processes.

        Each batch is divided among the replicas of all ranks. This method computes the share of
        each replica, because TensorFlow would divide the last batch of an epoch unevenly, or give
        some replicas no image of it.

        Args:
            epoch: number of the epoch, from 0.
            first: number of the first batch, from 0.
            rank: number of the rank.
            ranks: number of ranks among which each batch is divided.
            replicas: number of replicas of each rank.

        Returns:
            The shares of the replicas of `rank` in the first batch, in the order of the replicas,
            then their shares in the next batch, and so on. A share consists of images
            (n, size, size, 3) with values 0..255, classes (n,), and, for training images, weights
            (n,), which are 1 / images of the batch on all ranks. In an evaluation, a replica
            without an image in a batch gets an image of the class -1.
        """
        numbers, weights, flips, sizes = self._order(
            epoch, first, range(rank * replicas, (rank + 1) * replicas), ranks * replicas
        )
        found = tf.data.Dataset.from_tensor_slices((numbers, weights, flips))
        found = found.map(self._read, num_parallel_calls=1, deterministic=True)
        found = found.map(self._decode, num_parallel_calls=self.decoders, deterministic=True)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.decoders
        return found.batch(max(sizes)).rebatch(sizes).prefetch(2).with_options(options)

    def _order(
        self, epoch: int, first: int, own: range, replicas: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], list[int]]:
        """Choose the images of `epoch` that some of the replicas read, from step `first` on.

        `own` has the numbers of these replicas, `replicas` the number of replicas of all ranks.

        Returns:
            For each image its number, its weight, and whether it is mirrored; and the number of
            images of a batch that each replica gets. A replica without an image in a batch gets an
            image of the weight 0.
        """
        order, plan = self.plan.order(epoch), self.plan
        numbers, weights, flips, sizes = [], [], [], []
        for step in range(first, plan.steps):
            batch = order[step * plan.batch :][: plan.batch]
            mirrored = self.flip & (plan.draws(epoch, step, 1)[: len(batch), 0] < 0.5)
            for replica in own:
                share = plan.share(step, replica, replicas)
                weight = 1 / len(batch) if share.start < share.stop else 0
                images = share if weight else slice(0, 1)
                numbers.append(batch[images])
                flips.append(mirrored[images])
                sizes.append(len(numbers[-1]))
                weights.append(np.full(sizes[-1], weight, np.float32))
        return (np.concatenate(numbers), np.concatenate(weights), np.concatenate(flips), sizes)

    def _read(self, number: tf.Tensor, weight: tf.Tensor, flip: tf.Tensor) -> tuple[Any, ...]:
        def read(wanted: Any) -> tuple[bytes, Any]:
            content = decodable(bytes(self.source.encoded(int(wanted))))
            return content, np.int32(self.source.label(int(wanted)))

        content, label = tf.numpy_function(read, [number], [tf.string, tf.int32], stateful=False)
        label.set_shape(())
        return content, label, weight, flip

    def _decode(
        self, content: tf.Tensor, label: tf.Tensor, weight: tf.Tensor, flip: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        image = tf.io.decode_image(content, 3, expand_animations=False)
        image.set_shape((None, None, 3))
        image = tf.cond(flip, lambda: image[:, ::-1], lambda: image)
        pixels = resized(image, self.size)
        if self.plan.training:
            return pixels, label, weight
        return pixels, tf.where(weight > 0, label, -1)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert TensorFlow's error for an image that cannot be decoded.

        Raises:
            DataError: an image cannot be decoded; the message names the first such image.
        """
        try:
            yield
        except (tf.errors.InvalidArgumentError, tf.errors.UnknownError) as error:
            if (fault := decode_error(self.source, range(len(self.source)), 3)) is None:
                raise
            raise fault from error


def resized(image: tf.Tensor, size: int) -> tf.Tensor:
    """Return an image (H, W, 3) as the pixels (size, size, 3) that a network gets, in uint8."""
    return tf.cast(tf.round(tf.image.resize(image, (size, size), antialias=True)), tf.uint8)


@dataclass(frozen=True)
class Images:
    """The images of a training.

    Attributes:
        name: fingerprint of the data set, or "synthetic".
        classes: names of the classes.
        train: batches to train on.
        evaluation: batches to evaluate on.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    evaluation: Split


def open_images(settings: TrainSettings) -> Images:
    """Return the images that `settings` specify.

    Raises:
        DataError: the data set is missing or damaged.
    """

    def split(source: Source, training: bool) -> Split:
        plan = Plan(len(source), settings.batch_size, settings.seed, training)
        return Split(source, plan, settings.size, training and settings.flip, settings.decoders)

    if settings.data is None:
        source = Synthetic(settings.size, settings.seed)
        names = tuple(f"class {number}" for number in range(CLASSES))
        return Images("synthetic", names, split(source, True), split(source, False))
    dataset = open_dataset(settings.data)
    return Images(
        dataset.fingerprint(), tuple(dataset.classes), split(dataset.records("train"), True),
        split(dataset.records(dataset.evaluation_split()), False),
    )


def open_split(folder: Path, name: str | None, size: int, batch: int, decoders: int) -> Split:
    """Return the batches of one split in the order of the data set.

    Args:
        folder: folder of the data set.
        name: name of the split; None: the split to evaluate on.
        size: side to which images are resized, in pixels.
        batch: images per batch.
        decoders: number of images that are decoded in parallel.

    Raises:
        DataError: the data set or the split is missing or damaged.
    """
    dataset = open_dataset(folder)
    source = dataset.records(name or dataset.evaluation_split())
    return Split(source, Plan(len(source), batch, 0, training=False), size, False, decoders)


