"""Keras 2 for all tests of the app, and one thread."""

from __future__ import annotations

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # as in the images


def pytest_collection_modifyitems() -> None:
    """Have TensorFlow compute in one thread, as the contract's trainings ask for.

    It takes another number only before its first operation, and some of them run in this process,
    after any other test.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
