#!/usr/bin/env python
"""Measure the GPU of this machine in a few minutes: rates, parity with the CPU, one evidence file.

    make gpu-check PYTHON=python3
    python benchmarks/gpu_check.py --device cpu --only parity

The script needs Python, PyTorch with NumPy, and this checkout, but no network and no installation.
The parts are ordered by value, and each result is in the evidence file as soon as it is measured.
The exit code is 1 if a part failed that should work on this device, and 2 for a wrong option.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / "benchmarks", *sorted((ROOT / "apps").glob("*/src"))]
sys.path[:0] = map(str, SOURCES)

# These imports need the folders that the line above adds: nothing of the checkout is installed.
from gpuparts import PARTS, minutes  # noqa: E402
from gpuparts.parent import FULL_MINUTES, Check, table  # noqa: E402

FOUND = "import torch; print(torch.cuda.is_available())"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(description="Measure the GPU of this machine in a few minutes.")
    top.add_argument("--device", choices=("gpu", "cpu"), default="gpu",
                     help="gpu (NVIDIA or AMD), or cpu with tiny sizes (default: %(default)s)")
    top.add_argument("--minutes", type=minutes, default=FULL_MINUTES,
                     help="time of the whole check (default: %(default)g)")
    top.add_argument("--only", action="append", choices=[part.name for part in PARTS],
                     help="measure this part only (can be repeated)")
    top.add_argument("--to", type=Path, default=Path("gpu-check.json"),
                     help="evidence file (default: %(default)s)")
    return top


def main() -> int:
    """Run the check; return the exit code."""
    began, top = time.monotonic(), parser()
    options = top.parse_args()
    if not options.to.resolve().parent.is_dir() or options.to.is_dir():
        top.error(f"--to {options.to}: not a file in an existing folder")
    asked = subprocess.run([sys.executable, "-c", FOUND], capture_output=True, text=True,
                           check=False)
    if asked.returncode != 0:
        top.error(f"{sys.executable} cannot import torch: choose another one with PYTHON=")
    if options.device == "gpu" and asked.stdout.strip() != "True":
        top.error("PyTorch finds no GPU; --device cpu makes the same check on the CPU, tiny")
    device = "cuda" if options.device == "gpu" else "cpu"
    path = os.pathsep.join(map(str, SOURCES))
    check = Check(device, options.minutes, began, options.to, path)
    good = check.run(options.only or [part.name for part in PARTS])
    print(f"\n{table(check.document)}\n\nevidence: {options.to}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
