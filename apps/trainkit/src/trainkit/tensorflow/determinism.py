"""Deterministic results: seeds, threads, and operations in a fixed order."""

from __future__ import annotations

import random

import numpy as np
import tensorflow as tf


def prepare(
    seed: int, *, exact: bool = True, threads: int | None = None, inter: int = 1
) -> None:
    """Configure TensorFlow; call this function before its first operation.

    On CPUs, equal settings then give bit-identical weights on the same machine with the same number
    of threads. An app must draw random numbers from a `tf.random.Generator`, whose state a
    checkpoint keeps, or from `tf.random.stateless_*` with the step in the seed: the state of other
    operations of `tf.random` cannot be saved.

    Args:
        seed: seed of Python, NumPy, TensorFlow, and thereby of Keras's initializers.
        exact: whether each operation sums in a fixed order.
        threads: threads of one operation (intra-op), or None for TensorFlow's default.
        inter: number of operations that run in parallel (inter-op).

    Raises:
        RuntimeError: TensorFlow has already started with another number of threads.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    tf.random.set_seed(seed)
    if exact:
        tf.config.experimental.enable_op_determinism()
    if threads is not None and tf.config.threading.get_intra_op_parallelism_threads() != threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter)
