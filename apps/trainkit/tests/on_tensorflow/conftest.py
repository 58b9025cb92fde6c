"""Settings that all tests on TensorFlow share."""


def pytest_collection_finish() -> None:
    """Let TensorFlow run eight operations in parallel, whatever the tests of an app have set.

    Ranks that are threads wait within operations; each waiting operation needs its own thread.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_inter_op_parallelism_threads(8)
