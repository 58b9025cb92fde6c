"""What the tests on TensorFlow share."""

import tensorflow as tf


def pytest_collection_finish() -> None:
    """Set it after any `conftest.py` of an app that sets another number, in whatever order.

    Ranks that are threads wait inside of operations, each in a thread of TensorFlow's own.
    """
    tf.config.threading.set_inter_op_parallelism_threads(8)
