#!/usr/bin/env python
"""Measure the peak memory of FutureGAN by frame size, batch and micro-batch, for its README.

    python benchmarks/futuregan_memory.py --width 64 --json memory.json

Each case runs two steps of the app in fp32, because Adam's moments exist from the second step on.
On a CPU, the memory of the whole process is measured. Each rank is one process.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import sys
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import TWO_RANKS, Steps
from sidebyside.report import Plan

APP = "futuregan"
CASE = re.compile(r"(\d{1,3}):(\d{1,3})(?:/(\d{1,3}))?(x2)?")
CASES = [f"{side}:{batch}" for side in (4, 8, 16, 32, 64, 128) for batch in ("4", "16", "16/4")]


def case(text: str) -> tuple[int, int, int | None, bool]:
    """Parse a case such as `32:16/4x2`.

    Return the side of the frames in pixels (32), the clips per step and rank (16), the clips of a
    micro-batch (4, or None if omitted), and whether two ranks train (`x2`).
    """
    match = CASE.fullmatch(text)
    if match is None or int(match[1]) not in (4, 8, 16, 32, 64, 128) or not int(match[2]):
        raise argparse.ArgumentTypeError(f"{text}: not SIDE:BATCH[/PART][x2], such as 32:16/4")
    return int(match[1]), int(match[2]), int(match[3]) if match[3] else None, bool(match[4])


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Measure the peak memory of training FutureGAN, in GB.", rounds=1)
    top.add_argument("--cases", nargs="+", type=case, default=[case(word) for word in CASES],
                     metavar="SIDE:BATCH[/PART][x2]",
                     help="side of the frames, clips per step and rank, those of --micro-batch, "
                     "and whether two ranks train (default: 4 and 16 clips at each side, and 16 "
                     "in parts of 4)")
    top.add_argument("--width", type=cli.positive, default=64,
                     help="features up to 32 pixels, published: 512 (default: %(default)s)")
    top.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return top


def peak(metrics: str, rank: int = -1) -> float:
    """Return the peak memory of one rank in GB.

    Args:
        metrics: text of `metrics.jsonl`.
        rank: index of the rank if ranks are sorted by ascending memory; default: the last rank,
            which needs most memory.
    """
    lines = map(json.loads, metrics.splitlines())
    (event,) = (line for line in lines if line["key"] == "peak_memory_bytes")
    return float(sorted(event["metadata"]["ranks"])[rank] / 1e9)


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan: one training for each case, or two for a case with two ranks.

    One of the two trainings reports the memory of the rank that uses most, the other training the
    memory of the rank that uses least.
    """
    environment, notes = machine.our_environment(os.environ)
    contestants.app_options(environment, APP)
    found = []
    for side, batch, part, ranks in options.cases:
        words = ["--synthetic", "--size", str(side), "--first-size", str(side), "--width",
                 str(options.width), "--precision", "fp32", "--device", options.device]
        name = f"{side} px, batch {batch}"
        if part:
            words += ["--micro-batch", str(part)]
            name += f" in parts of {part}"
        ends = {"": -1} if not ranks else {", 2 ranks, the most": -1, ", 2 ranks, the least": 0}
        found += [
            contestants.training(
                name + end, APP, Steps(batch, 1, 1), environment, *words,
                *(["--strategy", "ddp"] if ranks else []), launcher=TWO_RANKS if ranks else (),
                rate=functools.partial(peak, rank=rank), unit="GB",
            )
            for end, rank in ends.items()
        ]
    return Plan(found, [], [*notes, f"width {options.width}, fp32, two steps of each"])


if __name__ == "__main__":
    sys.exit(cli.run("futuregan_memory", parser(), plan))
