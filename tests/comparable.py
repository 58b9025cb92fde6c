"""Create completed runs for comparisons, with given evaluations, throughputs and settings."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from finished import SIF, start
from trimaran.evidence import writing
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.run import run_directory
from trimaran.verdict import run_verdict


class Make(Protocol):
    """The type of a function that creates a run directory and returns its path."""

    def __call__(
        self, name: str, accuracies: Sequence[float] = (0.9,), speeds: Sequence[float] = (1000.0,),
        *, size: int | None = None, cores: int | None = None, joules: float | None = None,
        **changed: Argument,
    ) -> Path: ...


def leave(
    directory: Path, recipe: RecipeFile, accuracies: Sequence[float], speeds: Sequence[float],
    size: int | None, cores: int | None, changed: dict[str, Argument],
    joules: float | None = None,
) -> Path:
    """Create a completed run whose metrics have one step per second.

    The run has an evaluation after every ten steps.
    """
    record = start(directory, recipe, changed, image=SIF)
    if cores is not None:
        host = record.host.model_copy(update={"cores": cores})
        record = record.model_copy(update={"host": host})
    if size is not None:
        told = {"strategy": {"size": size}}
        (directory / "environment.json").write_text(json.dumps(told))
    _write(directory, accuracies, speeds, changed.get("seed"), joules)
    run_directory.finish(directory, record, "completed", 0)
    return directory


def _write(
    directory: Path, accuracies: Sequence[float], speeds: Sequence[float], seed: object,
    joules: float | None,
) -> None:
    lines: list[dict[str, Any]] = [{"time_ms": 0, "key": "run_start"}]
    if seed is not None:
        lines.append({"time_ms": 0, "key": "seed", "value": seed})
    last = max(len(speeds), 10 * len(accuracies))
    for step in range(1, last + 1):
        where = {"time_ms": 1000 * step, "metadata": {"step": step, "epoch_num": 1}}
        if step <= len(speeds):
            lines.append({**where, "key": "throughput", "value": speeds[step - 1]})
        if step % 10 == 0 and step <= 10 * len(accuracies):
            values = {"eval_accuracy": accuracies[step // 10 - 1], "eval_accuracy_top5": 0.99,
                      "eval_loss": 0.3}
            lines += [{**where, "key": key, "value": value} for key, value in values.items()]
    end = {"status": "success", "step": last, "epoch_num": 1}
    if joules is not None:
        lines.append({"time_ms": 1000 * last, "key": "energy_per_sample", "value": joules,
                      "metadata": {"step": last, "epoch_num": 1}})
    lines.append({"time_ms": 1000 * last, "key": "run_stop", "metadata": end})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = {"top1": accuracies[-1], "top5": 0.99, "loss": 0.3}
    result = {"status": "success", "steps": last, "evaluation": scores}
    (directory / "result.json").write_text(json.dumps(result))


def publish(directory: Path) -> Path:
    """Write the evidence of a run next to its directory, and return the path of the file."""
    file, judged = directory.with_suffix(".json"), run_verdict.judge(directory)
    writing.write(directory, judged.record, judged.verdict, file)
    return file


def noise(
    seed: int, level: float, *, scale: float = 5.0, memory: float = 0.0, count: int = 100
) -> list[float]:
    """Return a simulated series around `level`, an AR(1) process with the coefficient `memory`.

    `scale` is the standard deviation of its Gaussian innovations.
    """
    source, state, found = random.Random(seed), 0.0, []  # noqa: S311 - no secret
    for _ in range(count):
        state = memory * state + source.gauss(0, scale)
        found.append(level + state)
    return found
