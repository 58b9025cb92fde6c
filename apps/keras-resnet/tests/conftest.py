"""Settings for all tests of the app: Keras 2, and one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # as in the images


def pytest_collection_modifyitems() -> None:
    """Make TensorFlow compute in one thread, as the trainings of the contract tests require.

    TensorFlow accepts another number of threads only before its first operation. Some of these
    trainings run in this process, after any other test.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


@pytest.fixture
def own_precision() -> Iterator[None]:
    """Restore the precision of Keras after the test."""
    import tf_keras as keras

    before = keras.mixed_precision.global_policy()
    yield
    keras.mixed_precision.set_global_policy(before)
