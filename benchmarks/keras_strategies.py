#!/usr/bin/env python
"""Compare strategies of the app keras-resnet on two workers with one process on two cores.

    python benchmarks/keras_strategies.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import Contestant

APP = "keras_resnet"
GOAL = 0.9
"""Goal: the fastest strategy with two workers reaches this fraction of one process's rate."""


@dataclass(frozen=True)
class Strategy:
    """How a training is started.

    Attributes:
        name: name in the tables.
        options: options of `train`.
        ranks: number of ranks, which Open MPI starts if there are several.
    """

    name: str
    options: tuple[str, ...]
    ranks: int = 1


STRATEGIES = (
    Strategy("mirrored", ("--strategy", "mirrored", "--replicas", "2")),
    Strategy("multiworker", ("--strategy", "multiworker"), 2),
    Strategy("parameter server, asynchronous", ("--strategy", "parameter-server"), 4),
    Strategy("parameter server, synchronous",
             ("--strategy", "parameter-server", "--synchronous"), 4),
    Strategy("horovod", ("--strategy", "horovod"), 2),
)
"""Strategies with two workers, which have one core each.

A parameter server and a coordinator, if there are any, use the same two cores.
"""


@dataclass(frozen=True)
class Case:
    """A network and its batch.

    Attributes:
        network: name of the network.
        size: side of the images, in pixels.
        batch: images per step, on all workers together.
        window: steps per window; the rate is reported after each. The first is the warm-up.
    """

    network: str
    size: int
    batch: int
    window: int


CASES = (Case("Small", 32, 64, 200), Case("ResNet50V2", 64, 32, 4))
"""A network whose steps take milliseconds, and a network whose steps take about a second."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare the strategies of keras-resnet with one process.", rounds=3)
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan of the benchmark.

    For each network, the plan compares the training rates of all strategies with the rate of a
    single process on all cores.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_USE_LEGACY_KERAS": "1"}
    contestants.app_options(environment, APP)
    contestants.imported(environment, "horovod.tensorflow.keras")
    ours, notes = machine.our_environment(environment)
    runs: list[Contestant] = []
    compared: list[Comparison] = []
    for case in CASES:
        alone, *others = [
            contestant(one, case, options.windows, ours)
            for one in (Strategy("one process on all cores", ()), *STRATEGIES)
        ]
        runs += [alone, *others]
        title = f"{case.network}, {case.size} pixels"
        compared.append(Comparison(
            f"fastest strategy / one process, {title}", [one.name for one in others], alone.name,
            GOAL,
        ))
        compared += [
            Comparison(f"{one.name} / one process", one.name, alone.name) for one in others
        ]
    notes = [*notes, "fp32, synthetic images; batch of all workers: " + ", ".join(
        f"{case.batch} ({case.network})" for case in CASES
    )]
    return Plan(runs, compared, notes)


def contestant(
    strategy: Strategy, case: Case, windows: int, environment: Mapping[str, str]
) -> Contestant:
    """Return the contestant (measured command) that trains with a strategy on all cores."""
    cores = len(os.sched_getaffinity(0))
    threads = cores if not strategy.options else max(1, cores // 2)
    found = contestants.training(
        f"{case.network}: {strategy.name}", APP, Steps(case.batch, case.window, windows),
        environment, "--synthetic", "--model", case.network, "--size", str(case.size),
        "--epochs", "1000", "--eval-every", "0", "--threads", str(threads), "--decoders", "1",
        *strategy.options, batch_option="--batch-size",
    )
    return found if strategy.ranks == 1 else contestants.launched(found, strategy.ranks)


if __name__ == "__main__":
    sys.exit(cli.run("keras_strategies", parser(), plan))
