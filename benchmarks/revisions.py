#!/usr/bin/env python
"""Compare the training speed of this checkout with that of another revision, in alternate runs.

    python benchmarks/revisions.py --before REVISION --markdown benchmarks/README.md

Refactoring must not reduce the speed: the goal is at least 0.98 of the rate of the other revision.
With small images, the training loop takes most of the time; with large images, the kernels do.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Comparison, Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError, Contestant

HERE = Path(__file__).resolve().parents[1]
APPS = "apps"
SOURCES = tuple(f"{APPS}/{one}/src" for one in ("resnet-imagenet", "trainkit", "shards"))
CASES = {
    "ResNet-20 at 32 px": (Steps(64, 40, 3), ("--model", "resnet20", "--image-size", "32")),
    "ResNet-50 at 224 px": (Steps(8, 4, 3), ()),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare the app's training with that of another revision.", rounds=5)
    top.add_argument("--before", default="HEAD", metavar="REVISION",
                     help="revision to compare with: commit, tag or branch (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Return the plan of a benchmark that compares this checkout with the revision `--before`.

    The revision is unpacked into `folder`.
    """
    unpack(options.before, folder)
    environment, notes = machine.our_environment(os.environ)
    places = {"this checkout": HERE, "before": folder}
    competing: list[Contestant] = []
    comparisons = []
    for case, (steps, words) in CASES.items():
        now, before = (f"{case}, {name}" for name in places)
        competing += [
            contestants.ours(f"{case}, {name}", steps, of(place, environment),
                             options=("--precision", "fp32", *words))
            for name, place in places.items()
        ]
        comparisons.append(Comparison(f"{case}: this checkout / before", now, before, 0.98))
    return Plan(competing, comparisons, [*notes, f"before: revision {options.before}"])


def unpack(revision: str, folder: Path) -> None:
    """Write the apps of `revision` into `folder`.

    Raises:
        BenchmarkError: the revision does not exist or has no apps.
    """
    done = subprocess.run(
        ["git", "-C", str(HERE), "archive", "--format=tar", "--end-of-options", revision, APPS],
        capture_output=True, check=False,
    )
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip()
        raise BenchmarkError(f"--before {revision}: {why}", UNAVAILABLE)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as sources:
        sources.extractall(folder, filter="data")


def of(checkout: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with a PYTHONPATH from which Python imports the app in `checkout`."""
    return {**environment, "PYTHONPATH": os.pathsep.join(str(checkout / one) for one in SOURCES)}


if __name__ == "__main__":
    sys.exit(cli.run("revisions", parser(), plan))
