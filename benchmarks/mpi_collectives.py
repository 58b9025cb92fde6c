#!/usr/bin/env python
"""Compare the times that the app collectives measures with those of two plain programs.

    python benchmarks/mpi_collectives.py --markdown benchmarks/README.md

All three call the same MPI library on the same two ranks. The C program
(`baselines/plain_mpi.c`) measures independently. The app must agree with it at sizes where an
operation takes much longer than a call in Python. The loop in Python (`baselines/plain_mpi4py.py`)
shows how much time the app itself adds at the smallest size. The benchmark needs the compiler of
Open MPI (Debian: libopenmpi-dev).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sidebyside import cli, contestants
from sidebyside.report import Comparison, Plan
from sidebyside.runner import BENCHMARKS, UNAVAILABLE, BenchmarkError, Contestant

COMPILERS = ("mpicc.openmpi", "mpicc")
CASES = {
    ("all-reduce", 4): 20_000, ("latency", 4): 20_000, ("all-reduce", 1 << 20): 200,
    ("latency", 1 << 20): 200, ("all-reduce", 1 << 24): 10,
}
"""Operation and size in bytes -> calls per repetition."""
REPETITIONS = 9
UNIT = "calls/s"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return cli.parser("Compare the app collectives with plain programs.", rounds=7)


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Compile the C program into `folder`; return the plan that compares it with app and mpi4py."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    contestants.app_options(environment, "collectives", "measure")
    program = compiled(folder)
    competing: list[Contestant] = []
    comparisons = []
    for (operation, size), calls in CASES.items():
        case = f"{operation} of {size:,} B"
        words = [operation, str(size), str(calls), str(REPETITIONS)]
        competing += [
            contestants.launched(contestant) for contestant in (
                app(f"{case}: app", operation, size, calls, environment),
                Contestant(f"{case}: plain mpi4py", always(
                    [sys.executable, "-m", "baselines.plain_mpi4py", *words]), environment,
                    unit=UNIT),
                Contestant(f"{case}: C", always([str(program), *words]), environment, unit=UNIT),
            )
        ]
        comparisons += [
            Comparison(f"{case}: app / plain mpi4py", f"{case}: app", f"{case}: plain mpi4py",
                       0.95 if size == 4 else None),
            Comparison(f"{case}: app / C", f"{case}: app", f"{case}: C"),
        ]
    return Plan(competing, comparisons, ["two ranks, float32, Open MPI of the host"])


def always(argv: list[str]) -> Callable[[Path], list[str]]:
    """Return a function that returns the command `argv` and ignores its argument, a folder."""
    return lambda _folder: argv


def app(
    name: str, operation: str, size: int, calls: int, environment: dict[str, str]
) -> Contestant:
    """Return the contestant that runs the app `collectives` for one operation and message size."""

    def argv(folder: Path) -> list[str]:
        return [
            sys.executable, "-m", "collectives", "measure", "--library", "mpi", "--device", "cpu",
            "--out", str(folder / "out"), "--operations", operation, "--min-bytes", str(size),
            "--max-bytes", str(size), "--iterations", str(calls), "--repetitions",
            str(REPETITIONS), "--point-seconds", "60",
        ]

    def read(_stdout: str, folder: Path) -> float:
        text = (folder / "out/collectives.json").read_text(encoding="utf-8")
        return 1 / float(json.loads(text)["points"][0]["seconds"]["median"])

    return Contestant(name, argv, environment, read, UNIT)


def compiled(folder: Path) -> Path:
    """Compile the C program into `folder`, and return its path.

    Raises:
        BenchmarkError: the compiler is missing, or fails.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise BenchmarkError("the compiler mpicc of Open MPI is missing (Debian: libopenmpi-dev)",
                             UNAVAILABLE)
    program = folder / "plain_mpi"
    source = BENCHMARKS / "baselines/plain_mpi.c"
    done = subprocess.run([compiler, "-O2", str(source), "-o", str(program)], check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError(f"{compiler} fails: {done.stderr.strip()[-500:]}", UNAVAILABLE)
    return program


if __name__ == "__main__":
    sys.exit(cli.run("mpi_collectives", parser(), plan))
