#!/usr/bin/env python
"""Compare the training rate of ResNet-50 on one GPU: app, stock loop, upper bound (ceiling).

    python benchmarks/resnet_gpu.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError

OURS = "ours, bf16, synthetic"
STOCK = "stock: eager, bf16 autocast, channels_last"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare training ResNet-50 on one GPU with a stock baseline.", rounds=5)
    top.add_argument("--batch", type=cli.positive, default=256,
                     help="images per step (default: %(default)s)")
    top.add_argument("--window", type=cli.positive, default=50,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=4,
                     help="windows that count (default: %(default)s)")
    top.add_argument("--option", action="append", default=[], metavar="WORD",
                     help="a further option of the app's train, such as --option=--compile=default "
                     "(can be repeated)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan of the benchmark: what is measured, and which rates are compared.

    The training rate of the app is compared with the rate of a stock PyTorch loop, the upper bound
    for this GPU, the goal of the project, and a published rate of MLPerf.

    Raises:
        BenchmarkError: PyTorch finds no GPU.
    """
    environment = dict(os.environ)
    asked = [sys.executable, "-c", "import torch; raise SystemExit(not torch.cuda.is_available())"]
    if subprocess.run(asked, capture_output=True, check=False).returncode != 0:
        raise BenchmarkError("PyTorch finds no GPU, so nothing was measured", UNAVAILABLE)
    contestants.app_options(environment)
    steps = Steps(options.batch, options.window, options.windows)
    ceiling = contestants.ceiling("bf16", environment, "--device", "cuda")
    stock = contestants.stock(
        STOCK, steps, machine.stock_environment(environment),
        "--device", "cuda", "--autocast", "bfloat16", "--channels-last",
    )
    words = ("--precision", "bf16", *options.option)
    ours = contestants.ours(OURS, steps, environment, options=words)
    return Plan(
        [ceiling, stock, ours],
        [
            Comparison("ours / stock", OURS, STOCK, 1.5),
            Comparison("ours / ceiling", OURS, ceiling.name),
            Comparison("ours / 3,500 img/s (goal for one H200)", OURS, 3500, 1),
            Comparison("ours / 7,868 img/s (MLPerf v4.0, one H200)", OURS, 7868),
        ],
        [f"options of the app: {' '.join(words)}"],
    )


if __name__ == "__main__":
    sys.exit(cli.run("resnet_gpu", parser(), plan))
