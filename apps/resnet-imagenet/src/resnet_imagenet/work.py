"""Count the arithmetic operations of each layer of the networks.

`python -m resnet_imagenet.work` prints them as work.json.
"""

from __future__ import annotations

from typing import Any

import torch

from resnet_imagenet import benchmark, model
from resnet_imagenet.settings import ZOO
from trainkit.torch import work
from trainkit.workfile import write


def describe(name: str) -> dict[str, Any]:
    """Return the image size and the layers of the network `name`."""
    size = benchmark.SMALL_SIZE if name in model.SMALL else benchmark.SIZE
    with torch.device("meta"):
        return {
            "size": size,
            "layers": work.layers(benchmark.build(name, size), torch.empty(1, 3, size, size)),
        }


def main() -> None:
    """Print the layers of all networks and their operations as JSON."""
    write({name: describe(name) for name in dict.fromkeys((*model.MODELS, *ZOO))})


if __name__ == "__main__":
    main()
