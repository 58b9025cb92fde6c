"""What the tests on TensorFlow share."""


def pytest_collection_finish() -> None:
    """Set it after an app's tests have set another number (`pytest_collection_modifyitems`).

    Ranks that are threads wait inside of operations, each in a thread of TensorFlow's own.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_inter_op_parallelism_threads(8)
