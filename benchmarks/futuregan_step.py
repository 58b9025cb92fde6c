#!/usr/bin/env python
"""Compare the training rate of FutureGAN: the app, a plain loop, and an upper bound (ceiling).

    python benchmarks/futuregan_step.py --markdown benchmarks/README.md

This file is not called `futuregan.py`, because that would be imported in place of the app.
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

APP = "futuregan"
UNIT = "clips/s"
GOAL = 2
"""Goal at each size: the app's rate is at least this multiple of the plain loop's rate."""
DEVICES = {"cpu": "cpu", "gpu": "cuda"}
"""Name of a device in the app -> its name in PyTorch, which the baselines use."""


def batch(text: str) -> tuple[int, int]:
    """Parse a size such as `32:16`: return (side of the frames in pixels, clips per step)."""
    try:
        side, clips = map(int, text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: not SIDE:CLIPS, such as 32:16") from error
    if side not in (8, 16, 32, 64, 128) or clips < 1:
        raise argparse.ArgumentTypeError(f"{text}: frames of 8 to 128 pixels, at least 1 clip")
    return side, clips


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare training FutureGAN with the plain loop and the ceiling.", rounds=5)
    top.add_argument("--sizes", nargs="+", type=batch, default=[(32, 16), (64, 4)],
                     metavar="SIDE:CLIPS",
                     help="side of the frames and clips per step (default: 32:16 64:4)")
    top.add_argument("--width", type=cli.positive, default=32,
                     help="features up to 32 pixels, published: 512 (default: %(default)s)")
    top.add_argument("--precisions", nargs="+", choices=("fp32", "tf32", "bf16"),
                     default=("fp32", "bf16"), metavar="PRECISION",
                     help="of ours; plain is fp32, on a GPU with convolutions in TF32, as is "
                          "PyTorch's default (default: fp32 bf16)")
    top.add_argument("--device", choices=DEVICES, default="cpu")
    top.add_argument("--window", type=cli.positive, default=2,
                     help="steps per window; the first window warms up (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=3,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan that compares app, plain loop and upper bound at each size."""
    environment, notes = machine.our_environment(os.environ)
    contestants.app_options(environment, APP)
    parts = [size(options, side, clips, environment) for side, clips in options.sizes]
    return Plan(
        [one for part in parts for one in part.contestants],
        [one for part in parts for one in part.comparisons],
        [*notes, *(note for part in parts for note in part.notes)],
    )


def size(
    options: argparse.Namespace, side: int, clips: int, environment: Mapping[str, str]
) -> Plan:
    """Return the plan of the benchmark for one size: its contestants, and their comparisons.

    `side` is the side of the frames in pixels, and `clips` is the number of clips per step.
    """
    steps = Steps(clips, options.window, options.windows)
    plain = ("--size", str(side), "--width", str(options.width), "--batch", str(clips),
             "--device", DEVICES[options.device])
    work, without = gflop(plain, environment), gflop((*plain, "--no-penalty"), environment)
    arithmetic = "fp32" if options.device == "cpu" else "fp32 with convolutions in TF32"
    stocks = [
        contestants.program(
            f"plain loop at {side} px: eager, {arithmetic}, {name}, default malloc",
            machine.stock_environment(os.environ), "baselines.stock_futuregan", *plain, *more,
            "--window", str(steps.window), "--windows", str(steps.windows), unit=UNIT,
        )
        for name, more in (("NCDHW", ()), ("channels_last_3d", ("--channels-last",)))
    ]
    comparisons = [Comparison(
        f"channels_last_3d / NCDHW, plain loop, {side} px", stocks[1].name, stocks[0].name
    )]
    racing = list(stocks)
    for precision in options.precisions:
        ceiling = top_rate(
            precision, work, without, side, DEVICES[options.device], environment
        )
        ours = contestants.training(
            f"ours at {side} px, {precision}", APP, steps, environment,
            "--synthetic", "--size", str(side), "--first-size", str(side), "--width",
            str(options.width), "--precision", precision, "--device", options.device, unit=UNIT,
        )
        racing += [ceiling, ours]
        comparisons += [
            Comparison(f"ours in {precision} / plain loop, {side} px", ours.name, stocks[0].name,
                       GOAL),
            Comparison(f"ours / {precision} ceiling, {side} px", ours.name, ceiling.name),
            Comparison(f"{precision} ceiling / plain loop, {side} px: no program can be faster",
                       ceiling.name, stocks[0].name),
        ]
    return Plan(racing, comparisons, [
        f"{side} px: {work:.3g} GFLOP per clip (FlopCounterMode), {work - without:.3g} of them for "
        f"the gradient penalty, which bf16 leaves in fp32 (on a GPU TF32); batch {clips}, width "
        f"{options.width}"
    ])


def top_rate(
    precision: str, work: float, without: float, side: int, device: str,
    environment: Mapping[str, str],
) -> Contestant:
    """Return the contestant (measured command) for the upper bound of the training rate.

    It measures large matrix products, and divides their rate by the GFLOP of a step per clip. If
    `precision` is bf16, the operations of the gradient penalty are assumed to run in fp32 (on a
    GPU in TF32).

    Args:
        precision: precision of the operations.
        work: GFLOP of a step per clip.
        without: GFLOP of a step per clip without the gradient penalty.
        side: side of the frames in pixels.
        device: name of the device in PyTorch.
        environment: variables of the process.
    """
    words = ["--device", device]
    mixed = precision == "bf16"
    if mixed:
        words += ["--fp32-gflop-per-sample", str(work - without)]
    return contestants.ceiling(
        precision, environment, *words, gflop=without if mixed else work,
        what=f"clip at {side} px", unit=UNIT,
    )


def gflop(words: tuple[str, ...], environment: Mapping[str, str]) -> float:
    """Return the GFLOP of a step per clip, counted by PyTorch's FlopCounterMode.

    Raises:
        BenchmarkError: the count failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "baselines.stock_futuregan", *words, "--count"],
        env=dict(environment), cwd=BENCHMARKS, check=False, capture_output=True, text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(f"the operations of a step could not be counted: {last}", UNAVAILABLE)
    return float(json.loads(done.stdout)["gflop"])


if __name__ == "__main__":
    sys.exit(cli.run("futuregan_step", parser(), plan))
