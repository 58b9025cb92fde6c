"""Print `work.json`, from which `trimaran plan` reads the work of an app's networks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def write(networks: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the work of networks as JSON, a line for each layer.

    Args:
        networks: name -> `size` of a sample, and `layers`: see `trainkit.torch.work`.
    """
    parts = []
    for name, found in networks.items():
        lines = ",\n  ".join(json.dumps(layer) for layer in found["layers"])
        parts.append(f'{json.dumps(name)}: {{"size": {found["size"]}, "layers": [\n  {lines}]}}')
    sys.stdout.write("{\n" + ",\n".join(parts) + "\n}\n")
