"""Equal settings give equal weights: seeds, threads, and operations in a fixed order."""

from __future__ import annotations

import random

import numpy as np
import tensorflow as tf


def prepare(
    seed: int, *, exact: bool = True, threads: int | None = None, inter: int = 1
) -> None:
    """Set what is TensorFlow's own; to be called before its first operation.

    On CPUs, equal settings then give bit-equal weights on the same machine and thread count.
    What an app draws itself comes from a `tf.random.Generator`, whose state a checkpoint
    keeps, or from `tf.random.stateless_*` with the step in the seed: the state of the other
    operations of `tf.random` cannot be kept.

    Args:
        seed: of Python, NumPy, TensorFlow and thereby of Keras's initializers.
        exact: let each operation add up in one order, however its threads end.
        threads: cores that one operation computes with; None leaves it to TensorFlow.
        inter: operations that are computed side by side, and take cores from each other.

    Raises:
        RuntimeError: TensorFlow has computed already, with another number of threads.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    tf.random.set_seed(seed)
    if exact:
        tf.config.experimental.enable_op_determinism()
    if threads is not None and tf.config.threading.get_intra_op_parallelism_threads() != threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(inter)
