"""Count the operations of each layer of the networks: `python -m chexnet.work` prints work.json."""

from __future__ import annotations

from typing import Any

import keras

from chexnet import network
from trainkit.tensorflow import work
from trainkit.workfile import write

NETWORKS = (
    ("densenet121", 224), ("resnet50", 224), ("vgg16", 224), ("mobilenetv2", 64),
    ("mobilenetv2", 128),
)
"""The networks of the recipes, with the side of their images in pixels."""

FINDINGS = 14


def describe(name: str, size: int) -> dict[str, Any]:
    """Return the image size of the network `name`, and the operations of each of its layers."""
    keras.utils.clear_session()  # or names of layers depend on networks that were built before
    found = network.build(name, size, FINDINGS, "fp32")
    return {"size": size, "layers": work.layers(found.body) + work.layers(found.head)}


def main() -> None:
    """Print the operations in each layer of all networks as JSON."""
    write({f"{name}@{size}": describe(name, size) for name, size in NETWORKS})


if __name__ == "__main__":
    main()
