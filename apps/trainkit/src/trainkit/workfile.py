"""Print `work.json`, which lists the operations of an app's networks for `trimaran plan`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def write(networks: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a description of networks as JSON, with one line for each layer.

    Args:
        networks: name -> dict with `size`, the size of a sample, and `layers`, the result of
            `trainkit.torch.work.layers`.
    """
    parts = []
    for name, found in networks.items():
        lines = ",\n  ".join(json.dumps(layer) for layer in found["layers"])
        parts.append(f'{json.dumps(name)}: {{"size": {found["size"]}, "layers": [\n  {lines}]}}')
    sys.stdout.write("{\n" + ",\n".join(parts) + "\n}\n")
