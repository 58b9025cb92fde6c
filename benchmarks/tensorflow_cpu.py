#!/usr/bin/env python
"""Compare training rates in TensorFlow: app chexnet, Keras's `model.fit`, upper bound (ceiling).

    python benchmarks/tensorflow_cpu.py --markdown benchmarks/README.md

This file is not called tensorflow.py, because this folder is on the import path of the contestants,
where such a file would hide TensorFlow.
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

APP = "chexnet"
GFLOP_PER_IMAGE = 22.9
"""GFLOP per image of a training step of Keras's ResNet50 (v1) at 224 x 224: 6 x 3.856 - 2 x 0.118.

The forward pass has 3.856 G multiply-adds in convolutions and the last layer, with two operations
each. The backward pass has twice as many, but the first convolution (0.118) needs no gradient of
its input. TensorFlow's profiler counts 7.73 GFLOP for the whole forward pass.
"""
BEST_GOAL, SAME_GOAL, CEILING_GOAL = 1.5, 1.0, 0.5
"""Goals of three ratios of rates: app to model.fit, each in its fastest precision; app to model.fit
in the same precision; app to the upper bound.
"""
BF16 = ("avx512_bf16", "amx_bf16")
"""Flags of x86-64 processors with bf16 instructions; others emulate bf16, ten times slower.

How TensorFlow computes in bf16 on Arm processors is not known here.
"""
CASES = ("step", "ranks")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare training ResNet-50 in TensorFlow with Keras's model.fit.", rounds=3)
    top.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE",
                     help="step (one process), ranks (two, half the cores each, with Horovod); "
                     "default: both")
    top.add_argument("--precisions", nargs="+", choices=("fp32", "bf16"), metavar="PRECISION",
                     help="of ours and of model.fit (default: fp32, and bf16 where the processor "
                     "has instructions for it)")
    top.add_argument("--batch", type=cli.positive, default=16,
                     help="images per step of all ranks (default: %(default)s)")
    top.add_argument("--window", type=cli.positive, default=2,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the benchmark's plan with the comparisons of all requested cases."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    contestants.app_options(environment, APP)
    ours, notes = machine.our_environment(environment)
    field = Field(options, ours, machine.stock_environment(environment))
    has_bf16 = bool(set(BF16) & set(machine.facts([])["flags"]))
    precisions = options.precisions or ("fp32", "bf16")[: 1 + has_bf16]
    cases = {"step": step, "ranks": ranks}
    parts = [cases[name](field, precisions) for name in options.cases]
    notes = [*notes, f"{GFLOP_PER_IMAGE} GFLOP per image; batch {options.batch} of all ranks, 224 "
             "pixels, 14 findings, Adam, synthetic images; model.fit with default malloc"]
    if not has_bf16:
        notes.append("bf16 was not measured: the processor lacks the instructions of x86-64 for it")
    return Plan(
        [one for part in parts for one in part.contestants],
        [one for part in parts for one in part.comparisons], notes,
    )


@dataclass(frozen=True)
class Field:
    """A factory of contestants, which all train the same number of steps.

    Attributes:
        options: options of the command line.
        ours: environment variables with which the app runs, as in the CPU images.
        stock: environment variables without tuning, in which model.fit runs.
    """

    options: argparse.Namespace
    ours: Mapping[str, str]
    stock: Mapping[str, str]

    def own(self, name: str, precision: str, *words: str, stock: bool = False) -> Contestant:
        """Return a contestant (measured command) that runs the app's `train`.

        With `stock`, its environment has no tuning variables, like that of the command `fit`.
        """
        environment = self.stock if stock else self.ours
        return self._app("train", name, precision, environment, "--eval-every", "0", *words)

    def fit(self, name: str, precision: str, keras: int, *words: str) -> Contestant:
        """Return a contestant (measured command) that runs `model.fit` of Keras 2 or 3."""
        legacy = {**self.stock, "TF_USE_LEGACY_KERAS": str(int(keras == 2))}
        return self._app("fit", name, precision, legacy, *words)

    def _app(
        self, verb: str, name: str, precision: str, environment: Mapping[str, str], *words: str
    ) -> Contestant:
        options, shared = self.options, "horovod" in words
        threads = len(os.sched_getaffinity(0)) // (1 + shared) or 1
        steps = Steps(options.batch // (1 + shared), options.window, options.windows)
        found = contestants.training(
            name, APP, steps, environment, "--synthetic", "--model", "resnet50", "--precision",
            precision, "--threads", str(threads), *words, verb=verb,
        )
        return contestants.launched(found) if shared else found


def step(field: Field, precisions: list[str]) -> Plan:
    """Return the benchmark's plan for the case `step`, in which each contestant is one process.

    The plan compares the training rates of the app, of the app with the default malloc, of Keras's
    `model.fit`, and an upper bound: the rate that TensorFlow's matrix products allow.
    """
    runs: list[Contestant] = []
    compared: list[Comparison] = []
    for precision in precisions:
        best = contestants.program(
            f"ceiling: {precision} matmul rate of TensorFlow / {GFLOP_PER_IMAGE} GFLOP",
            field.ours, "baselines.matmul_tensorflow", "--precision", precision,
            "--gflop-per-sample", str(GFLOP_PER_IMAGE),
        )
        theirs = field.fit(f"model.fit, Keras 3, {precision}", precision, 3)
        own = field.own(f"ours, {precision}", precision)
        bare = field.own(f"ours, {precision}, default malloc", precision, stock=True)
        runs += [best, theirs, own, bare]
        compared += [
            Comparison(f"ours / model.fit, {precision}", own.name, theirs.name, SAME_GOAL),
            Comparison(f"ours / ceiling, {precision}", own.name, best.name, CEILING_GOAL),
            Comparison(f"model.fit / ceiling, {precision}", theirs.name, best.name),
            Comparison(f"ours / ours with default malloc, {precision}", own.name, bare.name),
        ]
    return Plan(runs, [best_of(runs, "ours / model.fit"), *compared])


def ranks(field: Field, precisions: list[str]) -> Plan:
    """Return the plan that compares app and model.fit on two Horovod ranks with half the cores."""
    runs: list[Contestant] = []
    compared: list[Comparison] = []
    for precision in precisions:
        shared = ("--strategy", "horovod")
        name = f"model.fit, Keras 2, Horovod's callbacks, 2 ranks, {precision}"
        theirs = field.fit(name, precision, 2, *shared)
        own = field.own(f"ours, 2 ranks, {precision}", precision, *shared)
        runs += [theirs, own]
        compared.append(Comparison(
            f"ours / model.fit, 2 ranks, {precision}", own.name, theirs.name, SAME_GOAL
        ))
    return Plan(runs, [best_of(runs, "ours / model.fit, 2 ranks"), *compared])


def best_of(runs: list[Contestant], text: str) -> Comparison:
    """Return the comparison of app and model.fit, each in its fastest precision."""
    own, theirs = ([one.name for one in runs if one.name.startswith(begin)]
                   for begin in ("ours", "model.fit"))
    return Comparison(f"{text}, best precision of each", own, theirs, BEST_GOAL)


if __name__ == "__main__":
    sys.exit(cli.run("tensorflow_cpu", parser(), plan))
