#!/usr/bin/env python
"""What a user waits for on a login node: a batch script, and how a thousand runs stand.

    .venv/bin/python benchmarks/cluster_time.py --markdown benchmarks/README.md

Rates are commands a second, with the start of the tool. The runs are made up and have ended; those
that go on are asked for in one call of the batch system, which takes what that takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from sidebyside import cli, contestants
from sidebyside.report import Comparison, Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError

SCRIPT, STATUS = "batch script: submit --dry-run", "status of {} runs"
START = "start of the tool: trimaran --version"
RECIPE = "resnet-imagenet/cpu-2node-smoke"
BEGIN = '{"number": 1, "job": "7", "started": "2026-01-01T00:00:00Z", "step": 0, "hosts": [%s]}'
END = ('{"ended": "2026-01-01T01:00:00Z", "exit_status": 0, "step": 9, "reason": "",'
       ' "files": {}}')


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Time what the login node of a cluster is asked for.", rounds=7)
    top.add_argument("--runs", type=cli.positive, default=1000,
                     help="whose state is asked for (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Return what runs."""
    tool = str(Path(sys.executable).with_name("trimaran"))
    site = folder / "site.yaml"
    site.write_text("clusters: {made-up: {partition: main}}\n")
    plain = os.environ | {"TRIMARAN_SITE": str(site)}
    leave(folder / "runs", options.runs)
    status = STATUS.format(f"{options.runs:,}")
    return Plan([
        contestants.program(SCRIPT, plain, "timed", tool, "submit", RECIPE, "--dry-run",
                            unit="1/s"),
        contestants.program(status, plain, "timed", "/usr/bin/env", "-C", str(folder), tool,
                            "status", unit="1/s"),
        contestants.program(START, plain, "timed", tool, "--version", unit="1/s"),
    ], [
        Comparison(f"{SCRIPT}: at least one a second", SCRIPT, 1.0, 1.0),
        Comparison(f"{status}: at least one a second", status, 1.0, 1.0),
    ])


def leave(folder: Path, count: int) -> None:
    """Leave directories of submitted runs that have ended.

    Raises:
        BenchmarkError: the tool is not installed beside this Python.
    """
    try:
        from trimaran.engines import Command
        from trimaran.hostfacts import host_facts
        from trimaran.recipes import library
        from trimaran.runs import rundir
        from trimaran.runs.record import ImageRecord, JobRecord
    except ImportError as error:
        raise BenchmarkError(f"{sys.executable} has no trimaran: make dev", UNAVAILABLE) from error
    recipe = library.load(RECIPE)
    image = ImageRecord(name=recipe.recipe.image.name, engine="apptainer", reference="/none",
                        digest=None, inputs="0" * 64)
    first = folder / "0"
    rundir.start(first, recipe, {}, image, [], Command(("srun",), {}),
                 job=JobRecord(scheduler="slurm", cluster="made-up", script_sha256="0" * 64))
    (first / "job").mkdir()
    (first / "job/job.sh").touch()
    (first / "job/ids").write_text("7\n")
    (first / "log.txt").touch()
    (first / "job/link-0001.json").write_text(BEGIN % host_facts().model_dump_json())
    (first / "job/link-0001.end.json").write_text(END)
    for number in range(1, count):
        shutil.copytree(first, folder / str(number))


if __name__ == "__main__":
    sys.exit(cli.run("cluster_time", parser(), plan))
