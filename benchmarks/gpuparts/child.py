"""Measure one part of the GPU check in this process; each result is a line of JSON on stdout."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from gpuparts import NotHereError, stand_ins

NOT_HERE = 4
"""Exit status of a part that cannot run here; the last line of stderr has the reason."""


def main(name: str, device: str, seconds: float) -> int:
    """Measure part `name` on `device` in about `seconds`; return the exit status."""
    until = time.monotonic() + seconds
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as results:
        os.dup2(2, 1)  # output of libraries goes to stderr, because stdout has results only

        def report(name: str, value: Any, unit: str = "", **more: Any) -> None:
            line = {"name": name, "value": value, "unit": unit} | more
            print(json.dumps(line), file=results, flush=True)

        stand_ins.install()
        try:
            importlib.import_module(f"gpuparts.{name}").measure(device, until, report)
        except NotHereError as error:
            print(error, file=sys.stderr)
            return NOT_HERE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
