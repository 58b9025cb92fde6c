"""The options of each command, documented at their fields; `--help` is made from them."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resnet_imagenet.sizes import ImageSizes, image_sizes
from trainkit.engine import ENGINES
from trainkit.exits import ArgumentError
from trainkit.options import (
    fraction,
    non_negative_float,
    non_negative_int,
    option,
    positive_float,
    positive_int,
)

MODELS = ("resnet20", "resnet32", "resnet18", "resnet34", "resnet50")
PRECISIONS = ("fp32", "bf16")
SCHEDULES = ("cosine", "polynomial")
DALI_THREADS = min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    data: Path | None = option(None, "folder of the packed data set (dataset.json)", Path)
    out: Path | None = option(None, "folder of this run: metrics, checkpoints, result", Path)
    model: str = option("resnet50", "network", choices=MODELS)
    stem: Literal["imagenet", "small"] | None = option(
        None,
        "first layers: 7x7 stride 2 and max-pool, or 3x3 (default: the model's own)",
        choices=("imagenet", "small"),
    )
    epochs: int = option(90, "passes over the training images", positive_int)
    max_steps: int | None = option(
        None, "end after this many steps; the schedule still spans all epochs", positive_int
    )
    batch_size_per_rank: int = option(256, "images per step and process", positive_int)
    base_lr: float = option(0.256, "peak learning rate", positive_float)
    base_batch: int | None = option(
        None,
        "global batch that --base-lr is meant for: the rate is scaled linearly to the real one "
        "(default: no scaling)",
        positive_int,
    )
    warmup_epochs: float = option(5.0, "epochs of linear warm-up from 0", non_negative_float)
    schedule: str = option("cosine", "decay after the warm-up", choices=SCHEDULES)
    power: float = option(2.0, "power of the polynomial schedule", positive_float)
    momentum: float = option(0.875, "momentum of SGD", fraction)
    weight_decay: float = option(
        3.0517578125e-05, "L2 penalty; never on biases and batch normalization", non_negative_float
    )
    label_smoothing: float = option(0.1, "share of the target spread over classes", fraction)
    precision: str = option("bf16", "bf16 is autocast, weights stay fp32", choices=PRECISIONS)
    image_size: ImageSizes | None = option(
        None,
        "side in pixels, or SIZE:EPOCH,… to grow, as in 128:0,160:12,224:24 "
        "(default: 224, or the size of a set of small images)",
        image_sizes,
        metavar="SIZES",
    )
    scale_augmentation: bool = option(
        True, "random scale and aspect ratio of photographs; without it only place and flip"
    )
    max_bad_records: int = option(
        0, "undecodable records to name, replace by their neighbour, and go on", non_negative_int
    )
    stage: Path | None = option(
        None, "node-local folder to copy the shards to before the training", Path
    )
    seed: int = option(17, "seeds weights, order and augmentation", non_negative_int)
    threads: int = option(DALI_THREADS, "threads of the input pipeline", positive_int)
    engine: str = option("single", "how ranks work together", choices=ENGINES)
    resume: str = option(
        "never",
        "never; auto: go on from the newest checkpoint in --out; or a checkpoint file",
        metavar="never|auto|FILE",
    )
    checkpoint_every: int | None = option(
        None, "steps between checkpoints (default: at the end of each epoch only)", positive_int
    )
    keep: int = option(2, "checkpoints to keep", positive_int)
    eval_every: int = option(1, "epochs between evaluations; 0: never", non_negative_int)
    log_every: int = option(50, "steps between lines of progress", positive_int)
    synthetic: bool = option(False, "one random batch instead of --data: pure compute throughput")

    def check(self) -> None:
        """Refuse what the single options cannot see.

        Raises:
            ArgumentError: options that are missing or contradict each other.
        """
        if self.out is None:
            raise ArgumentError("train needs --out DIR")
        if (self.data is None) != self.synthetic:
            raise ArgumentError("train needs either --data DIR or --synthetic")
        if self.warmup_epochs > self.epochs:
            raise ArgumentError(
                f"--warmup-epochs {self.warmup_epochs:g} is longer than --epochs {self.epochs}"
            )
        if self.resume not in ("never", "auto") and not Path(self.resume).is_file():
            raise ArgumentError(f"--resume {self.resume}: no such file (or say auto, or never)")


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = option(None, "folder of the packed data set (dataset.json)", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    batch_size: int = option(128, "images per step", positive_int)
    precision: str | None = option(None, "default: as trained", choices=PRECISIONS)
    threads: int = option(DALI_THREADS, "threads of the input pipeline", positive_int)
    json: bool = option(False, "print one JSON object")

    def check(self) -> None:
        """Refuse missing options."""
        if self.data is None:
            raise ArgumentError("evaluate needs --data DIR")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("evaluate needs either --out DIR or --checkpoint FILE")


@dataclass(frozen=True)
class PredictSettings:
    """Options of `predict`."""

    data: Path | None = option(None, "an image file, or a folder of them", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    top: int = option(5, "classes to show per image", positive_int)
    batch_size: int = option(32, "images per step", positive_int)
    threads: int = option(DALI_THREADS, "threads of the input pipeline", positive_int)
    json: bool = option(False, "print one JSON array")

    def check(self) -> None:
        """Refuse missing options."""
        if self.data is None:
            raise ArgumentError("predict needs --data FILE|DIR")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("predict needs either --out DIR or --checkpoint FILE")
