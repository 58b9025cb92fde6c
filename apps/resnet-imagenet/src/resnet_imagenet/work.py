"""The work of the networks, layer by layer: `python -m resnet_imagenet.work` prints work.json."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from resnet_imagenet import benchmark, model
from resnet_imagenet.settings import ZOO
from trainkit.torch import work


def describe(name: str) -> dict[str, Any]:
    """Return the image size and the layers of the network `name`."""
    size = benchmark.SMALL_SIZE if name in model.SMALL else benchmark.SIZE
    with torch.device("meta"):
        return {
            "size": size,
            "layers": work.layers(benchmark.build(name, size), torch.empty(1, 3, size, size)),
        }


def main() -> None:
    """Print the work of all networks as JSON, a line for each layer."""
    parts = []
    for name in dict.fromkeys((*model.MODELS, *ZOO)):
        found = describe(name)
        lines = ",\n  ".join(json.dumps(layer) for layer in found["layers"])
        parts.append(f'{json.dumps(name)}: {{"size": {found["size"]}, "layers": [\n  {lines}]}}')
    sys.stdout.write("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
