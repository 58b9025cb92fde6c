#!/usr/bin/env python
"""Time commands of the tool: reports, batch scripts, states of runs, and the start of the tool.

    .venv/bin/python benchmarks/tool_time.py --markdown benchmarks/README.md

Rates are complete commands per second, including the start of the tool. Reports and states are
measured with artificial runs. All submitted runs have ended: if a run were active, the tool would
call the batch system, and the time of this call varies. One real run of a few steps, in the
container that `make quickstart` has built, measures the time that `trimaran run` adds for
verification, records and verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sidebyside import cli, contestants
from sidebyside.report import Comparison, Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError

if TYPE_CHECKING:
    from trimaran.run.record import JobRecord, RunRecord

EACH, FEW = "report, each step logged", "report, every 50th step logged"
SCRIPT, STATUS = "batch script: submit --dry-run", "status of {} submitted runs"
OVERHEAD = "trimaran run, without what its container takes"
START = "start of the tool: trimaran --version"
RECIPE, SUBMITTED = "resnet-imagenet/cpu-quickstart", "resnet-imagenet/cpu-2node-smoke"
SHORT = ("--engine", "apptainer", "--set", "max-steps=4")
LINK = '{"number": 1, "job": "7", "started": "2026-01-01T00:00:00Z", "step": 0, "hosts": [%s]}'
END = '{"ended": "2026-01-01T01:00:00Z", "exit_status": 0, "step": 9, "reason": "", "files": {}}'


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Time the commands of the tool that users wait for.", rounds=7)
    top.add_argument("--steps", type=cli.positive, default=10_000,
                     help="steps of the reported run (default: %(default)s)")
    top.add_argument("--runs", type=cli.positive, default=1000,
                     help="number of runs in the status (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, folder: Path) -> Plan:
    """Write the artificial runs into `folder`, and return the plan of all commands."""
    tool = str(Path(sys.executable).with_name("trimaran"))
    site = folder / "site.yaml"
    site.write_text("clusters: {made-up: {partition: main}}\n")
    submitted(folder / "runs", options.runs)
    status = STATUS.format(f"{options.runs:,}")
    words = {
        EACH: (tool, "report", str(reported(folder / "each", options.steps, 1))),
        FEW: (tool, "report", str(reported(folder / "few", options.steps, 50))),
        SCRIPT: (tool, "submit", SUBMITTED, "--dry-run"),
        status: ("/usr/bin/env", "-C", str(folder), tool, "status"),
        START: (tool, "--version"),
    }
    # An empty PYTHONDONTWRITEBYTECODE lets Python store bytecode, as for a user.
    environment = os.environ | {"TRIMARAN_SITE": str(site), "PYTHONDONTWRITEBYTECODE": ""}
    return Plan(
        [*(contestants.program(name, environment, "timed", *argv, unit="1/s")
           for name, argv in words.items()),
         contestants.program(OVERHEAD, environment, "overhead", tool, "run", RECIPE, *SHORT,
                             unit="s")],
        [*(Comparison(f"{name}: at least one a second", name, 1.0, 1.0)
           for name in (EACH, FEW, SCRIPT, status)),
         Comparison(f"{EACH} / {START}", EACH, START)],
        [f"the run is made up: {options.steps:,} steps, five values for each that is logged, ten"
         " evaluations"],
    )


def begin(directory: Path, recipe_name: str, engine: str, job: JobRecord | None) -> RunRecord:
    """Write the files of a run that has started, but start no process; return its record."""
    from trimaran.launch.specification import Node
    from trimaran.recipes import library
    from trimaran.run import inputs, launch_spec, run_directory
    from trimaran.run.additions import Extension
    from trimaran.run.launch_spec import Places
    from trimaran.run.record import DataRecord, ImageRecord
    from trimaran.run.site_settings import SiteSettings

    recipe = library.load(recipe_name)
    data = [DataRecord(name=name, path="/data", sha256="0" * 64) for name in recipe.recipe.data]
    image = ImageRecord(name=recipe.recipe.image.name, engine=engine, reference="/none",
                        digest=None, inputs="0" * 64)
    spec = launch_spec.specification(
        recipe.recipe, {}, image.image, Node("python", "/none"),
        Places({one.name: inputs.mount(recipe.recipe, one.name, one.path) for one in data},
               str(directory)),
        module="resnet_imagenet", extension=Extension(), site=SiteSettings(),
    )
    return run_directory.start(directory, recipe, {}, image, data, spec, job=job)


def submitted(folder: Path, count: int) -> None:
    """Write the directories of `count` submitted runs that have ended."""
    try:
        from trimaran.hostfacts import host_facts
        from trimaran.run.record import JobRecord
    except ImportError as error:
        raise BenchmarkError(f"{sys.executable} has no trimaran: make dev", UNAVAILABLE) from error
    first = folder / "0"
    begin(first, SUBMITTED, "apptainer",
          JobRecord(scheduler="slurm", cluster="made-up", script_sha256="0" * 64))
    (first / "job").mkdir()
    (first / "job/job.sh").touch()
    (first / "job/ids").write_text("7\n")
    (first / "log.txt").touch()
    (first / "job/link-0001.json").write_text(LINK % host_facts().model_dump_json())
    (first / "job/link-0001.end.json").write_text(END)
    for number in range(1, count):
        shutil.copytree(first, folder / str(number))


def reported(directory: Path, steps: int, every: int) -> Path:
    """Write a completed run with artificial metrics, and return its folder.

    The metrics have an entry every `every` steps.
    """
    from trimaran.recipes import library
    from trimaran.run import run_directory

    record = begin(directory, RECIPE, "host", None)
    recipe = library.load(RECIPE).recipe
    use = next(iter(recipe.data.values()))
    facts = {"train_samples": use.samples["train"], "eval_samples": use.samples["test"],
             "seed": recipe.args["seed"], "global_batch_size": 64}
    text = "".join(f"{json.dumps(line)}\n" for line in lines(steps, every, facts))
    (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
    scores = {"top1": 0.9, "top5": 0.99, "loss": 0.3}
    result = {"status": "success", "steps": steps, "evaluation": scores}
    (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")
    run_directory.finish(directory, record, "completed", 0)
    return directory


def lines(steps: int, every: int, facts: dict[str, object]) -> list[dict[str, object]]:
    """Return the entries of `metrics.jsonl` of an artificial run whose steps take 50 ms."""
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
    sys.exit(cli.run("tool_time", parser(), plan))
