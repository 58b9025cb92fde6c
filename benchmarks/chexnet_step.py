#!/usr/bin/env python
"""A training step in TensorFlow: the app chexnet against Keras's `model.fit` and the ceiling.

    python benchmarks/chexnet_step.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import GFLOP_PER_IMAGE, Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import Contestant

APP = "chexnet"
SAME_GOAL = 1.0
"""Of ours / model.fit in the same precision."""
CEILING_GOAL = 0.5
CASES = ("step", "ranks")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare training ResNet-50 in TensorFlow with Keras's model.fit.", rounds=5)
    top.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE",
                     help="step (one process), ranks (two of one core each, over Horovod); "
                     "default: both")
    top.add_argument("--batch", type=cli.positive, default=16,
                     help="images per step of all ranks (default: %(default)s)")
    top.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                     help="of ours and of model.fit (default: %(default)s)")
    top.add_argument("--window", type=cli.positive, default=2,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return what runs; each case adds its contestants."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    contestants.app_options(environment, APP)
    cases = {"step": step, "ranks": ranks}
    parts = [cases[name](options, environment) for name in options.cases]
    notes = [f"{GFLOP_PER_IMAGE} GFLOP per image: see ceiling above; batch {options.batch} of all "
             "ranks, 224 pixels, 14 findings, Adam, synthetic images"]
    if options.precision == "bf16" and "avx512_bf16" not in machine.facts([])["flags"]:
        notes.append("this processor has no instructions for bf16: both sides emulate it")
    return Plan(
        [one for part in parts for one in part.contestants],
        [one for part in parts for one in part.comparisons], notes,
    )


def step(options: argparse.Namespace, environment: Mapping[str, str]) -> Plan:
    """Return one process with all cores: ceiling, model.fit and ours."""
    best = contestants.program(
        f"ceiling: {options.precision} matmul rate of TensorFlow / {GFLOP_PER_IMAGE} GFLOP",
        environment, "baselines.matmul_tensorflow", "--precision", options.precision,
        "--gflop-per-sample", str(GFLOP_PER_IMAGE),
    )
    threads = len(os.sched_getaffinity(0))
    theirs = fit(f"model.fit, Keras 3, {options.precision}", options, environment, threads,
                 options.batch)
    own = ours(f"ours, {options.precision}", options, environment, threads, options.batch)
    return Plan([best, theirs, own], [
        Comparison("ours / model.fit", own.name, theirs.name, SAME_GOAL),
        Comparison("ours / ceiling", own.name, best.name, CEILING_GOAL),
        Comparison("model.fit / ceiling", theirs.name, best.name),
    ], [])


def ranks(options: argparse.Namespace, environment: Mapping[str, str]) -> Plan:
    """Return two ranks over Horovod with half the cores each: Keras's callback and ours."""
    threads, half = max(1, len(os.sched_getaffinity(0)) // 2), options.batch // 2
    theirs = contestants.launched(fit(
        f"model.fit, Keras 2, Horovod's callback, 2 ranks, {options.precision}", options,
        environment, threads, half, "--horovod",
    ))
    own = contestants.launched(ours(
        f"ours, 2 ranks, {options.precision}", options, environment, threads, half,
        "--strategy", "horovod",
    ))
    return Plan([theirs, own],
                [Comparison("ours / model.fit, 2 ranks", own.name, theirs.name, SAME_GOAL)], [])


def fit(
    name: str, options: argparse.Namespace, environment: Mapping[str, str], threads: int,
    batch: int, *words: str,
) -> Contestant:
    """Return the stock program."""
    return contestants.program(
        name, environment, "baselines.stock_keras", "--batch", str(batch), "--window",
        str(options.window), "--windows", str(options.windows), "--threads", str(threads),
        "--precision", options.precision, *words,
    )


def ours(
    name: str, options: argparse.Namespace, environment: Mapping[str, str], threads: int,
    batch: int, *words: str,
) -> Contestant:
    """Return the app's own `train`."""
    return contestants.training(
        name, APP, Steps(batch, options.window, options.windows), environment, "--synthetic",
        "--model", "resnet50", "--eval-every", "0", "--precision", options.precision,
        "--threads", str(threads), *words,
    )


if __name__ == "__main__":
    sys.exit(cli.run("chexnet_step", parser(), plan))
