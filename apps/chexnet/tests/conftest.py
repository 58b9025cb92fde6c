"""A data set of small images that show squares, of which a network can tell where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_findings import image, pack


def pytest_collection_modifyitems() -> None:
    """Have TensorFlow compute in one thread, as the contract's trainings ask for.

    It takes another number only before its first operation, and some of them run in this process,
    after any other test.
    """
    import tensorflow as tf  # the process that only hands out tests does not need it

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


@pytest.fixture(scope="session")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey images of 32x32 pixels: a square on the left, on the right, both or none."""
    folder = tmp_path_factory.mktemp("findings") / "squares"
    return pack(folder, {
        "train": [image(seed) for seed in range(27)],
        "val": [image(seed) for seed in range(100, 112)],
    })
