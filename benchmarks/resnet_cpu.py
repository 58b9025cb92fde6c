#!/usr/bin/env python
"""Compare training rates of ResNet-50 on CPU cores: app, stock benchmarks, upper bound (ceiling).

    python benchmarks/resnet_cpu.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import Contestant

CASES = ("step", "ranks", "data", "checkpoints", "strategies")
OURS = "ours, bf16, synthetic"
STOCK_FP32 = "stock: eager, fp32, NCHW, default malloc"
STOCK_BF16 = "stock, bf16 autocast, channels_last, default malloc"
FROM_JPEG = "ours, bf16, from JPEG shards"
ONE_RANK = "ours, 1 rank x all cores"
TWO_RANKS = "ours, 2 ranks x half the cores, DDP"
WITHOUT = "ours, no checkpoints"
DDP = "ours, 2 ranks, DDP over Gloo"
HOROVOD = "ours, 2 ranks, Horovod over Open MPI"
POLLING = "the same, Open MPI not told to yield the core"
CHECKPOINTS = "ours, a checkpoint every {} steps"
BETWEEN = 10  # steps between checkpoints: seconds here, but minutes in a real training


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare training ResNet-50 on CPU cores with stock baselines.", rounds=5)
    top.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE",
                     help="step (against stock and ceiling), ranks (2 x 1/2 the cores against "
                     "1 x all), data (JPEG shards against synthetic), checkpoints (with against "
                     "without), strategies (DDP against Horovod, 2 ranks); default: all")
    top.add_argument("--batch", type=cli.positive, default=32,
                     help="images per step and process (default: %(default)s)")
    top.add_argument("--window", type=cli.positive, default=3,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    top.add_argument("--photographs", type=Path, metavar="DIR",
                     help="JPEG photographs for the case data (default: foolbox's)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Return the benchmark's plan with the comparisons of all requested cases.

    The cases `step` and `data` share the contestant OURS (the app with synthetic images), which
    runs once per round.
    """
    environment, notes = machine.our_environment(os.environ)
    help_text = contestants.app_options(environment)
    steps = Steps(options.batch, options.window, options.windows)
    whole = Plan([], [], notes)
    if {"step", "data"} & set(options.cases):
        ours = contestants.ours(OURS, steps, environment, options=("--precision", "bf16"))
        whole = Plan([ours], [], notes)
    if "step" in options.cases:
        whole = joined(step(steps, environment), whole)
    if "data" in options.cases:
        whole = joined(whole, data(steps, environment, folder, options))
    if "ranks" in options.cases:
        whole = joined(whole, ranks(steps, environment, len(options.cores), help_text))
    if "strategies" in options.cases:
        whole = joined(whole, strategies(steps, environment, len(options.cores)))
    if "checkpoints" in options.cases:
        whole = joined(whole, checkpoints(steps, environment))
    return whole


def joined(first: Plan, second: Plan) -> Plan:
    """Return a plan with the contestants, comparisons and notes of both plans."""
    return Plan(
        [*first.contestants, *second.contestants],
        [*first.comparisons, *second.comparisons],
        [*first.notes, *second.notes],
        [*first.missing, *second.missing],
    )


def step(steps: Steps, environment: Mapping[str, str]) -> Plan:
    """Return the plan that compares the app with the stock benchmarks and the upper bounds.

    The caller must add the contestant OURS, which is the app with synthetic images.
    """
    plain = machine.stock_environment(os.environ)
    bf16 = ("--autocast", "bfloat16", "--channels-last")
    ceiling = contestants.ceiling("bf16", environment)
    fp32 = contestants.ceiling("fp32", environment)
    return Plan(
        [
            ceiling,
            fp32,
            contestants.stock(STOCK_FP32, steps, plain),
            contestants.stock(STOCK_BF16, steps, plain, *bf16),
        ],
        [
            Comparison("ours / stock", OURS, STOCK_FP32, 10),
            Comparison("ours / stock with bf16 and channels_last", OURS, STOCK_BF16, 1.5),
            Comparison("ours / bf16 ceiling", OURS, ceiling.name, 0.3),
            Comparison("bf16 ceiling / fp32 ceiling", ceiling.name, fp32.name),
            Comparison("bf16 ceiling / stock: no program can be faster", ceiling.name, STOCK_FP32),
        ],
    )


def data(
    steps: Steps, environment: Mapping[str, str], folder: Path, options: argparse.Namespace
) -> Plan:
    """Return the plan that compares training on JPEG shards with training on synthetic data.

    The caller must add the contestant OURS, which trains on synthetic data.
    """
    from sidebyside import photographs  # imported here, because other cases need no Pillow

    made = photographs.make(folder, steps.batch * steps.all, options.photographs)
    words = ("--precision", "bf16", "--threads", str(len(options.cores)))
    ours = contestants.ours(FROM_JPEG, steps, environment, data=made.packed, options=words)
    return Plan(
        [ours], [Comparison("from JPEG shards / synthetic", FROM_JPEG, OURS, 0.9)], [made.note]
    )


def ranks(steps: Steps, environment: Mapping[str, str], cores: int, help_text: str) -> Plan:
    """Return the plan that compares one rank on all cores with two ranks on half the cores each.

    Both trainings have the same global batch. `help_text` is the help of the app's `train`, which
    must list the strategy `ddp`; else the plan states that the comparison is not available.
    """
    if cores < 2 or "ddp" not in help_text:
        why = "one core only" if cores < 2 else "this version of the app has no --strategy ddp"
        return Plan([], [], missing=[f"2 ranks / 1 rank: not available, {why}"])
    double = Steps(2 * steps.batch, steps.window, steps.windows)
    options = ("--precision", "bf16")
    half = {**environment, "OMP_NUM_THREADS": str(cores // 2)}
    return Plan(
        [
            contestants.ours(ONE_RANK, double, environment, options=options),
            contestants.ours(
                TWO_RANKS, steps, half, launcher=contestants.TWO_RANKS,
                options=(*options, "--strategy", "ddp"),
            ),
        ],
        [Comparison("2 ranks x half the cores / 1 rank x all", TWO_RANKS, ONE_RANK, 0.9)],
        [f"ranks: global batch {double.batch} in both"],
    )


def strategies(steps: Steps, environment: Mapping[str, str], cores: int) -> Plan:
    """Return the plan that compares DDP with Horovod on two ranks.

    Horovod is measured twice: with an Open MPI that yields the core while it waits, and without.
    """
    half = {**environment, "OMP_NUM_THREADS": str(max(1, cores // 2))}
    polling = {**half, "OMPI_MCA_mpi_yield_when_idle": "0"}

    def two(name: str, strategy: str, env: Mapping[str, str]) -> Contestant:
        options = ("--precision", "bf16", "--strategy", strategy)
        return contestants.launched(contestants.ours(name, steps, env, options=options))

    return Plan(
        [two(DDP, "ddp", half), two(HOROVOD, "horovod", half), two(POLLING, "horovod", polling)],
        [
            Comparison("Horovod / DDP, 2 ranks", HOROVOD, DDP),
            Comparison("Horovod, yielding the core / not", HOROVOD, POLLING),
        ],
        [f"strategies: both started by mpirun, {steps.batch} images per rank"],
    )


def checkpoints(steps: Steps, environment: Mapping[str, str]) -> Plan:
    """Return the plan that compares the elapsed times of training with and without checkpoints."""
    longer = Steps(steps.batch, BETWEEN, steps.windows)
    name, bf16 = CHECKPOINTS.format(BETWEEN), ("--precision", "bf16")
    every = ("--checkpoint-every", str(BETWEEN))
    clock = contestants.with_all_that_stops
    return Plan(
        [
            contestants.ours(WITHOUT, longer, environment, options=bf16, rate=clock),
            contestants.ours(name, longer, environment, options=(*bf16, *every), rate=clock),
        ],
        [Comparison(f"a checkpoint every {BETWEEN} steps / none", name, WITHOUT, 0.965)],
    )


if __name__ == "__main__":
    sys.exit(cli.run("resnet_cpu", parser(), plan))
