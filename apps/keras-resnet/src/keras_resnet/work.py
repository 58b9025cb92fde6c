"""The operations of each layer of the networks: `python -m keras_resnet.work` prints work.json."""

from __future__ import annotations

from typing import Any

import tf_keras as keras

from keras_resnet import network
from trainkit.tensorflow import work
from trainkit.workfile import write

NETWORKS = (
    ("ResNet50V2", 128), ("ResNet101V2", 128), ("ResNet152V2", 128), (network.SMALL, 32),
)
"""The networks of the recipes, with the sides of the images."""

CLASSES = 10


def describe(name: str, size: int, classes: int = CLASSES) -> dict[str, Any]:
    """Return the image size and the layers of the network `name`."""
    keras.backend.clear_session()  # or names of layers depend on networks that were built before
    return {"size": size, "layers": work.layers(network.network(name, size, classes))}


def main() -> None:
    """Print the operations of each layer of all networks as JSON."""
    write({f"{name}@{size}": describe(name, size) for name, size in NETWORKS})


if __name__ == "__main__":
    main()
