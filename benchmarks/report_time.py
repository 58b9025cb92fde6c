#!/usr/bin/env python
"""The report of a long run, as a user waits for it, beside what no report goes below.

    .venv/bin/python benchmarks/report_time.py --markdown benchmarks/README.md

Rates are reports a second: the whole command, with its start and the drawing of the pictures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from pathlib import Path

from sidebyside import cli, contestants
from sidebyside.report import Comparison, Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError

EACH, FEW = "report, each step logged", "report, every 50th step logged"
START, DRAWING = "start of the tool: trimaran --version", "import of matplotlib.figure"
RECIPE = "resnet-imagenet/cpu-quickstart"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Time the report of a run with many steps.", rounds=7)
    top.add_argument("--steps", type=cli.positive, default=10_000,
                     help="of the run (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Return what runs."""
    tool = str(Path(sys.executable).with_name("trimaran"))
    plain = dict(os.environ)
    runs = {EACH: 1, FEW: 50}
    runners = [
        contestants.program(
            name, plain, "timed", tool, "report", str(leave(folder / str(every), options, every)),
            unit="1/s",
        )
        for name, every in runs.items()
    ]
    runners += [
        contestants.program(START, plain, "timed", tool, "--version", unit="1/s"),
        contestants.program(
            DRAWING, plain, "timed", sys.executable, "-c", "import matplotlib.figure", unit="1/s"
        ),
    ]
    return Plan(runners, [
        Comparison(f"{EACH}: at least one a second", EACH, 1.0, 1.0),
        Comparison(f"{FEW}: at least one a second", FEW, 1.0, 1.0),
        Comparison(f"{EACH} / {DRAWING}", EACH, DRAWING),
    ], [f"the run is made up: {options.steps:,} steps, five values for each that is logged, ten"
        " evaluations"])


def leave(directory: Path, options: argparse.Namespace, every: int) -> Path:
    """Leave the directory of a run that logged every so many steps; numbers are made up.

    Raises:
        BenchmarkError: the tool is not installed beside this Python.
    """
    try:
        from trimaran.engines import Command
        from trimaran.recipes import library
        from trimaran.recipes.command import app_arguments
        from trimaran.runs import rundir
        from trimaran.runs.record import DataRecord, ImageRecord
    except ImportError as error:
        raise BenchmarkError(f"{sys.executable} has no trimaran: make dev", UNAVAILABLE) from error
    recipe = library.load(RECIPE)
    data = [DataRecord(name=name, path="/data", sha256="0" * 64) for name in recipe.recipe.data]
    words = app_arguments(recipe.recipe, {}, data="/data", out=str(directory))
    record = rundir.start(
        directory, recipe, {},
        ImageRecord(name=recipe.recipe.image.name, engine="host", reference="/none", digest=None,
                    inputs="0" * 64),
        data, Command(("python", "-m", "resnet_imagenet", *words), dict(recipe.recipe.env)),
    )
    use = next(iter(recipe.recipe.data.values()))
    facts = {"train_samples": use.samples["train"], "eval_samples": use.samples["test"],
             "seed": recipe.recipe.args["seed"], "global_batch_size": 64}
    text = "".join(f"{json.dumps(line)}\n" for line in lines(options.steps, every, facts))
    (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
    scores = {"top1": 0.9, "top5": 0.99, "loss": 0.3}
    result = {"status": "success", "steps": options.steps, "evaluation": scores}
    (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")
    rundir.finish(directory, record, "completed", 0)
    return directory


def lines(steps: int, every: int, facts: dict[str, object]) -> list[dict[str, object]]:
    """Return `metrics.jsonl` of a run whose steps take 50 ms."""
    source = random.Random(17)  # noqa: S311 - no secret
    found: list[dict[str, object]] = []

    def tell(step: int, values: dict[str, object], **more: object) -> None:
        where = {"step": step, "epoch_num": 1 + 10 * step // (steps + 1), **more}
        found.extend(
            {"namespace": "", "time_ms": 1_700_000_000_000 + 50 * step,
             "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": where}
            for key, value in values.items()
        )

    tell(0, {"run_start": None, **facts})
    for step in range(every, steps + 1, every):
        loss = 2.3 * math.exp(-3 * step / steps) + source.gauss(0, 0.05)
        tell(step, {"train_loss": loss, "learning_rate": 0.1,
                    "throughput": source.gauss(1200, 30), "data_wait_fraction": 0.02,
                    "communication_fraction": 0.01})
        if step % max(every, steps // 10 // every * every) == 0:
            tell(step, {"eval_accuracy": 0.9, "eval_accuracy_top5": 0.99, "eval_loss": 0.3})
    tell(steps, {"eval_accuracy": 0.9, "eval_accuracy_top5": 0.99, "eval_loss": 0.3,
                 "training_seconds": 0.05 * steps})
    tell(steps, {"run_stop": None}, status="success")
    return found


if __name__ == "__main__":
    sys.exit(cli.run("report_time", parser(), plan))
