#!/usr/bin/env python
"""Measure memory, bytes sent and step time of the layouts of the language model.

    python benchmarks/language_layouts.py --markdown benchmarks/README.md

A layout divides the training among ranks, for example by FSDP, tensor or pipeline parallelism.
For each layout, the benchmark runs `python -m language_model estimate --measure`, which counts the
tensors in memory and the bytes that a rank sends, and times five further steps. All ranks share the
cores.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sidebyside import cli, machine
from sidebyside.report import Plan
from sidebyside.runner import Contestant

FSDP, PIPELINE = "--data-parallel fsdp", "--pipeline-parallel 2"
LAYOUTS = {
    1: {"one process": "", "recompute selective": "--recompute selective",
        "recompute full": "--recompute full", "4 micro-batches": "--micro-batches 4"},
    2: {"ddp": "", "zero1": "--data-parallel zero1", "zero2": "--data-parallel zero2",
        "fsdp": FSDP, "tensor 2": "--tensor-parallel 2", "context 2": "--context-parallel 2",
        "pipeline 2, gpipe": f"{PIPELINE} --micro-batches 4 --pipeline-schedule gpipe",
        "pipeline 2, 1f1b": f"{PIPELINE} --micro-batches 4"},
    4: {"ddp": "", "zero1": "--data-parallel zero1", "zero2": "--data-parallel zero2",
        "fsdp": FSDP, "tensor 4": "--tensor-parallel 4",
        "fsdp 2 x tensor 2": f"{FSDP} --tensor-parallel 2",
        "tensor 2 x pipeline 2": f"{PIPELINE} --tensor-parallel 2 --micro-batches 4",
        "fsdp 2 x pipeline 2": f"{FSDP} {PIPELINE} --micro-batches 4",
        "fsdp over 4, context 2": f"{FSDP} --context-parallel 2"},
}
"""Number of ranks -> name of a layout -> options of `estimate` for this layout."""


HEADER = ["ranks", "layout", "states, MB", "activations, MB", "peak, MB", "estimated / counted",
          "sent per step, MB", "step, s"]


def row(name: str, document: Mapping[str, Any], seconds: float) -> list[str]:
    """Return the row of a layout in the table, with the columns `HEADER`."""
    largest = max(document["memory"], key=lambda one: one["peak"])
    measured = document["measured"]
    peak = max(measured["peak"])
    return [
        str(document["ranks"]), name.partition(" ranks: ")[2],
        f"{max(measured['states']) / 1e6:.1f}", f"{largest['activations'] / 1e6:.1f}",
        f"{peak / 1e6:.1f}", f"{largest['peak'] / peak:.3f}",
        f"{max(measured['sent']) / 1e6:.1f}", f"{seconds:.3f}",
    ]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Measure memory, bytes sent and step time of layouts.", rounds=1)
    top.add_argument("--ranks", nargs="+", type=int, choices=tuple(LAYOUTS), default=[1, 2, 4])
    top.add_argument("--options", default="--model gpt2-5m --sequence 256 --batch-size 16 "
                     "--precision fp32", help="network and batch (default: %(default)s)")
    return top


def contestants(options: argparse.Namespace, found: dict[str, Any]) -> list[Contestant]:
    """Return a contestant (measured command) for each layout; its run adds results to `found`."""
    environment, _ = machine.our_environment(os.environ)
    environment["OMP_NUM_THREADS"] = "1"

    def read(stdout: str, _folder: Path, name: str) -> float:
        found[name] = json.loads(stdout.strip().splitlines()[-1])
        return float(found[name]["measured"]["seconds"])

    def layout(ranks: int, name: str, words: str) -> Contestant:
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        argv = [sys.executable, *(start if ranks > 1 else []), "-m", "language_model", "estimate",
                *options.options.split(), *words.split(), "--measure", "--json",
                "--strategy", "mesh" if ranks > 1 else "single", "--device", "cpu"]
        full = f"{ranks} ranks: {name}"
        return Contestant(full, lambda _: argv, environment, functools.partial(read, name=full),
                          "s")

    return [layout(ranks, name, words) for ranks in options.ranks
            for name, words in LAYOUTS[ranks].items()]


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the plan, which runs all layouts and shows a table with a row for each layout."""
    found: dict[str, Any] = {}
    notes = [
        f"{options.options}; one thread per rank; each row is of the rank that needs or sends most",
        "states, peak and bytes are counted; activations are estimated; bytes are those of a ring",
    ]
    return Plan(
        contestants(options, found), [], notes,
        rows=lambda rates: [
            HEADER, *(row(name, document, rates[name].median) for name, document in found.items())
        ],
    )


if __name__ == "__main__":
    sys.exit(cli.run("language_layouts", parser(), plan))
