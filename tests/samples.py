"""Define a valid recipe and its metrics, which several tests modify."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimaran import paths
from trimaran.recipes import cards

CARD_FILE = cards.load_copy(paths.repository() / "apps/resnet-imagenet/app.yaml")
CARD = CARD_FILE.card
"""The app card of the recipe GOOD."""

GOOD: dict[str, Any] = {
    "schema": 1,
    "summary": "A test.",
    "app": "resnet-imagenet",
    "target": "cpu-2core",
    "purpose": "smoke",
    "image": {"name": "resnet-imagenet-torch-cpu", "digest": None},
    "data": {"fashion-mnist": {"format": "webdataset", "samples": {"train": 10, "test": 5}}},
    "resources": {"cpus_per_task": 2, "walltime": "00:10:00"},
    "launcher": "none",
    "args": {"model": "resnet20", "epochs": 1},
    "expected": [
        {"metric": "val_top1", "unit": "%", "at": "end", "value": 90, "lower": -0.01,
         "source": "a paper"}
    ],
}


COUNTS: dict[str, int] = GOOD["data"]["fashion-mnist"]["samples"]


def metrics(
    accuracy: float, steps: int = 3, counts: Mapping[str, int] = COUNTS
) -> Iterator[dict[str, Any]]:
    """Yield the lines of `metrics.jsonl` of a run of the recipe GOOD.

    Args:
        accuracy: top-1 accuracy after the training, in [0, 1].
        steps: number of training steps.
        counts: number of samples of each split.
    """
    where = {"step": steps, "epoch_num": 1}
    yield {"key": "run_start"}
    yield from ({"key": key, "value": counts[split]}
                for key, split in (("train_samples", "train"), ("eval_samples", "test")))
    for step in range(1, steps + 1):
        at = {"step": step, "epoch_num": 1}
        yield {"key": "train_loss", "value": 2.0 / step, "metadata": at}
        yield {"key": "throughput", "value": 1500.0 + step, "metadata": at}
    for key, value in (("eval_accuracy", accuracy), ("eval_accuracy_top5", accuracy / 2 + 0.5),
                       ("eval_loss", 0.3)):
        yield {"key": key, "value": value, "metadata": where}
    yield {"key": "run_stop", "metadata": {"status": "success", **where}}


def write_outcome(
    directory: Path, accuracy: float, steps: int = 3, counts: Mapping[str, int] = COUNTS
) -> None:
    """Write `metrics.jsonl` and `result.json` of a completed run of the recipe `GOOD`."""
    lines = [json.dumps({"time_ms": 1, **event}) for event in metrics(accuracy, steps, counts)]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    scores = {"top1": accuracy, "top5": accuracy / 2 + 0.5, "loss": 0.3}
    result = {"status": "success", "steps": steps, "evaluation": scores}
    (directory / "result.json").write_text(json.dumps(result))
