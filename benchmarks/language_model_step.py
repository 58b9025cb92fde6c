#!/usr/bin/env python
"""Compare the training rate of the language model: app, plain loop, transformers, upper bound.

    python benchmarks/language_model_step.py --markdown benchmarks/README.md

This file is not called `language_model.py`, because that would be imported in place of the app.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import BENCHMARKS, UNAVAILABLE, BenchmarkError, Contestant

APP = "language_model"
UNIT = "tokens/s"
PLAIN_GOALS = {"bf16": 1.5, "fp32": 1.0}
"""Precision of the app -> goal for the app's rate, as a multiple of that of the plain loop.

The plain loop is an untuned PyTorch training loop in fp32 (`baselines/plain_gpt2.py`).
"""
TRANSFORMERS_GOAL = 1.1
"""Goal for the app's rate, as a multiple of the rate of transformers in the same precision."""


def case(text: str) -> tuple[str, int, int]:
    """Parse a case such as `gpt2-5m:256:16`: return (model, tokens of a sequence, sequences)."""
    try:
        model, sequence, batch = text.split(":")
        numbers = int(sequence), int(batch)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: not MODEL:TOKENS:SEQUENCES, such as gpt2-5m:256:16"
        ) from error
    if not model.startswith("gpt2-") or min(numbers) < 1:
        raise argparse.ArgumentTypeError(
            f"{text}: a GPT-2 shape of the app, and at least 1 token and 1 sequence"
        )
    return model, *numbers


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser(
        "Compare training a language model with a plain loop, transformers and the ceiling.",
        rounds=5,
    )
    top.add_argument("--cases", nargs="+", type=case, metavar="MODEL:TOKENS:SEQUENCES",
                     default=[("gpt2-5m", 256, 16), ("gpt2-124m", 256, 4)],
                     help="shape, tokens of a sequence and sequences of a step (default: "
                          "gpt2-5m:256:16 gpt2-124m:256:4)")
    top.add_argument("--precisions", nargs="+", choices=tuple(PLAIN_GOALS),
                     default=tuple(PLAIN_GOALS), metavar="PRECISION",
                     help="of ours and of transformers; the plain loop is fp32 (default: bf16 "
                          "fp32)")
    top.add_argument("--transformers", action=argparse.BooleanOptionalAction, default=True,
                     help="compare with transformers and accelerate, which must be installed")
    top.add_argument("--loader", action=argparse.BooleanOptionalAction, default=True,
                     help="compare the loader of packed text with the speed of the memory")
    top.add_argument("--window", type=cli.positive, default=2,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan of the benchmark: the programs to measure, and the rates to compare.

    In each case (model, sequence length, batch size), training with the app is compared with a
    plain PyTorch loop, the upper bound, and transformers (option `--transformers`). With
    `--loader`, the app's loader of packed text is compared with copies of arrays in memory.
    """
    environment, notes = machine.our_environment(os.environ)
    contestants.app_options(environment, APP)
    if options.transformers:
        contestants.imported(environment, "transformers", "accelerate")
        notes += ["transformers: class Trainer, with the default malloc and OpenMP; 'preloaded': "
                  "with the same libraries preloaded as ours"]
    parts = [training(options, *one, environment) for one in options.cases]
    if options.loader:
        parts.append(loading(environment))
    return Plan(
        [one for part in parts for one in part.contestants],
        [one for part in parts for one in part.comparisons],
        [*notes, *(note for part in parts for note in part.notes)],
    )


def training(
    options: argparse.Namespace, model: str, sequence: int, batch: int,
    environment: Mapping[str, str],
) -> Plan:
    """Return the plan of the benchmark for `model`: the trainings whose step times are compared."""
    shape = ("--model", model, "--sequence", str(sequence))
    steps = Steps(batch, options.window, options.windows)
    length = ("--batch", str(batch), "--window", str(steps.window), "--windows",
              str(steps.windows))
    work = gflop(shape, environment)
    stock = machine.stock_environment(os.environ)
    plain = contestants.program(
        f"{model}, plain loop: eager, fp32, default malloc", stock, "baselines.plain_gpt2",
        *shape, *length, unit=UNIT,
    )
    racing: list[Contestant] = [plain]
    comparisons = []
    for precision in options.precisions:
        ceiling = contestants.ceiling(
            precision, environment, gflop=work, what=f"token of {model}", unit=UNIT
        )
        ours = contestants.training(
            f"{model}, ours, {precision}", APP, steps, environment, "--synthetic", *shape,
            "--precision", precision, "--eval-every", "0", unit=UNIT, batch_option="--batch-size",
        )
        racing += [ceiling, ours]
        comparisons += [
            Comparison(f"{model}: ours in {precision} / plain loop in fp32", ours.name, plain.name,
                       PLAIN_GOALS[precision]),
            Comparison(f"{model}: ours / {precision} ceiling", ours.name, ceiling.name),
        ]
        if options.transformers:
            for name, variables, goal in (
                ("transformers", stock, TRANSFORMERS_GOAL),
                ("transformers, preloaded", environment, None),
            ):
                other = contestants.program(
                    f"{model}, {name}, {precision}", variables, "baselines.transformers_gpt2",
                    *shape, *length, "--precision", precision, unit=UNIT,
                )
                racing.append(other)
                comparisons.append(Comparison(
                    f"{model}: ours / {name}, both in {precision}", ours.name, other.name, goal
                ))
    return Plan(racing, comparisons, [
        f"{model}: {work:.3g} GFLOP per token (6 N + 12 L H Q T: `operations_per_token` of the "
        f"app); {batch} sequences of {sequence} tokens per step"
    ])


def loading(environment: Mapping[str, str]) -> Plan:
    """Return the plan that compares the loader of packed text with copying arrays in memory."""
    loader, copies = (
        contestants.program(name, environment, "baselines.token_loader", *words, unit=UNIT)
        for name, words in (
            ("loader: batches of packed text", ()),
            ("memory: copies of arrays of the same size", ("--copy",)),
        )
    )
    return Plan(
        [loader, copies], [Comparison("loader / copies in memory", loader.name, copies.name)], []
    )


def gflop(shape: tuple[str, ...], environment: Mapping[str, str]) -> float:
    """Return the GFLOP of a step per token, by the formula of the app.

    Raises:
        BenchmarkError: the operations cannot be counted, for example because the app has no model
            of this name.
    """
    done = subprocess.run(
        [sys.executable, "-m", "baselines.plain_gpt2", *shape, "--count"],
        env=dict(environment), cwd=BENCHMARKS, check=False, capture_output=True, text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(
            f"the operations of {shape[1]} could not be computed: {last}", UNAVAILABLE
        )
    return float(json.loads(done.stdout)["gflop"])


if __name__ == "__main__":
    sys.exit(cli.run("language_model_step", parser(), plan))
