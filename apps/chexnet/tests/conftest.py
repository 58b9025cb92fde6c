"""A data set of small images with squares, whose positions a network can learn."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_findings import image, pack


def pytest_collection_modifyitems() -> None:
    """Limit TensorFlow to one thread, as the tests of the app contract require.

    TensorFlow accepts the number of threads only before its first operation, and some trainings
    of these tests run in this process after other tests.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


@pytest.fixture(scope="session")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of grey 32x32 images with a square on the left, the right, both sides, or none."""
    folder = tmp_path_factory.mktemp("findings") / "squares"
    return pack(folder, {
        "train": [image(seed) for seed in range(27)],
        "val": [image(seed) for seed in range(100, 112)],
    })
