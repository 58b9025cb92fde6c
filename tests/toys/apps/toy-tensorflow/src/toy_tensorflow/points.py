"""Points of a square, and whether the product of their coordinates is positive."""

from __future__ import annotations

import tensorflow as tf

HELD_OUT = 512
Batch = tuple[tf.Tensor, tf.Tensor]


def training(seed: int, step: int, batch: int) -> Batch:
    """Return the `batch` points of a training step; they depend only on the arguments."""
    return _points(batch, [seed, step])


def held_out(seed: int) -> Batch:
    """Return the points for the evaluation, which occur in no training step."""
    return _points(HELD_OUT, [seed, -1])


def share(batch: Batch, rank: int, size: int) -> Batch:
    """Return the part of a global batch that belongs to `rank`, one of `size` ranks."""
    points, labels = batch
    own = len(points) // size
    return points[rank * own : (rank + 1) * own], labels[rank * own : (rank + 1) * own]


def _points(count: int, seed: list[int]) -> Batch:
    points = tf.random.stateless_uniform((count, 2), tf.constant(seed, tf.int64), -1.0, 1.0)
    return points, tf.cast(tf.reduce_prod(points, 1) > 0, tf.int32)
