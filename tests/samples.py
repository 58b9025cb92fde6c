"""Samples that several tests start from."""

from __future__ import annotations

from typing import Any

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
