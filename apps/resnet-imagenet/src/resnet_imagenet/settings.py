"""The options of each command, documented at their fields; `--help` is made from them."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from resnet_imagenet.sizes import LEAST, MOST, ImageSizes, image_sizes
from trainkit import atomic
from trainkit.exits import ArgumentError
from trainkit.options import (
    fraction,
    increasing,
    non_negative_float,
    non_negative_int,
    option,
    positive_float,
    positive_int,
    up_to,
)
from trainkit.torch import AUTO, BACKENDS, COMPRESSIONS, DEVICES, STRATEGIES

MODELS = ("resnet20", "resnet32", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
WARMUPS = ("gradual", "constant")
SCHEDULES = ("constant", "step", "polynomial", "cosine", "cyclic")
OPTIMIZERS = ("sgd", "lars")
COMPILE = ("off", "default", "reduce-overhead", "max-autotune")
GRAPHS = ("reduce-overhead", "max-autotune")
DALI_THREADS = min(4, len(os.sched_getaffinity(0)))
THREADS_SHOWN = "one for each usable core, at most 4"
WARMUP_EPOCHS = 5.0  # the usual ones, of the usual `epochs`
BATCH, THREADS = up_to(1 << 20), up_to(1024)


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    RENAMED: ClassVar[dict[str, str]] = {"engine": "strategy"}

    data: Path | None = option(None, "folder of the packed data set (dataset.json)", Path)
    out: Path | None = option(None, "folder of this run: metrics, checkpoints, result", Path)
    # The network.
    model: str = option("resnet50", "network", choices=MODELS)
    stem: Literal["imagenet", "small"] | None = option(
        None,
        "first layers: 7x7 stride 2 and max-pool, or 3x3 (default: the model's own)",
        choices=("imagenet", "small"),
    )
    bn_momentum: float = option(
        0.1,
        "share of the newest batch in batch normalization's moving averages (Caffe's moving "
        "average fraction is 1 minus this)",
        fraction,
    )
    sync_bn: bool = option(False, "batch statistics over all ranks instead of each rank's (GPUs)")
    ema_decay: float = option(
        0.0, "decay of a moving average of the weights, which is evaluated then; 0: none", fraction
    )
    # How long, and how many images at once.
    epochs: int = option(90, "passes over the training images", positive_int)
    steps: int | None = option(None, "train this many steps instead of --epochs", positive_int)
    max_steps: int | None = option(
        None, "end after this many steps; the schedule still spans the whole training", positive_int
    )
    batch_size_per_rank: int = option(256, "images per step and process", BATCH)
    accumulation: int = option(
        1,
        "parts of the batch of a rank, one after the other, each with batch statistics of its own: "
        "the same training as with that many times the ranks",
        positive_int,
    )
    # The learning rate.
    base_lr: float = option(0.256, "peak learning rate", positive_float)
    base_batch: int | None = option(
        None,
        "global batch that --base-lr is meant for: the rate is scaled linearly to the real one "
        "(default: no scaling)",
        positive_int,
    )
    warmup: str = option(
        "gradual", "linear from --warmup-lr, or constant at it, before the peak", choices=WARMUPS
    )
    warmup_epochs: float | None = option(
        None,
        "epochs of warm-up (default: 5, or where so many do not fit, the share of the training "
        "that they are of 90)",
        non_negative_float,
    )
    warmup_steps: int | None = option(
        None, "steps of warm-up, instead of --warmup-epochs", non_negative_int
    )
    warmup_lr: float = option(0.0, "rate of the first step of the warm-up", non_negative_float)
    schedule: str = option("cosine", "decay after the warm-up", choices=SCHEDULES)
    power: float = option(2.0, "power of the polynomial and cyclic schedules", positive_float)
    milestones: tuple[float, ...] = option(
        (30.0, 60.0, 80.0), "epochs after which the step schedule takes a tenth", increasing
    )
    cycle_epochs: float = option(
        20.0, "length of a cycle of the cyclic schedule, its warm-up included", positive_float
    )
    # The optimizer.
    optimizer: str = option("sgd", "SGD with momentum, or LARS", choices=OPTIMIZERS)
    momentum: float = option(0.875, "momentum", fraction)
    nesterov: bool = option(False, "Nesterov's momentum (SGD)")
    trust: float = option(0.001, "trust coefficient of LARS", positive_float)
    weight_decay: float = option(
        3.0517578125e-05, "L2 penalty; never on biases and batch normalization", non_negative_float
    )
    label_smoothing: float = option(0.1, "share of the target spread over classes", fraction)
    initial: Path | None = option(
        None, "checkpoint whose weights this training starts from, as a second stage", Path
    )
    # Precision and speed.
    precision: str = option(
        AUTO,
        "bf16 and fp16 are autocast, weights stay fp32; fp16 scales the loss; tf32: GPUs; "
        "auto: bf16 where all devices have instructions for it, else fp32",
        choices=(AUTO, *PRECISIONS),
    )
    compile: str = option(
        "off",
        "mode of torch.compile, which needs a C++ compiler, and on a GPU Triton: images on a "
        "torch-*-dev framework have them; reduce-overhead has CUDA graphs",
        choices=COMPILE,
    )
    compile_cache: Path | None = option(
        None, "folder for compiled code, to be kept between runs (default: in --out)", Path
    )
    deterministic: bool = option(
        False, "equal settings give bit-equal weights on GPUs too (on CPUs they always do)"
    )
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
    threads: int = option(
        DALI_THREADS, "threads of the input pipeline", THREADS, shown=THREADS_SHOWN
    )
    # The ranks.
    strategy: str = option("single", "how ranks work together", choices=STRATEGIES)
    backend: str | None = option(
        None, "of --strategy ddp (default: nccl on GPUs, else gloo)", choices=BACKENDS
    )
    compression: str = option("none", "of gradients between ranks", choices=COMPRESSIONS)
    ranks: int | None = option(
        None,
        "ranks that batch and accumulation are meant for; fewer, where a node was lost, share "
        "their work (default: as many as there are)",
        positive_int,
    )
    watchdog: int = option(
        300,
        "seconds without progress after which ranks that hang are ended, and named; 0: never",
        non_negative_int,
    )
    device: str = option("auto", "auto: the GPU of this rank where there is one", choices=DEVICES)
    # Checkpoints and reports.
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
    profile: int = option(
        0, "steps to profile after the first ten: where the time goes; 0: none", non_negative_int
    )

    def check(self) -> None:
        """Refuse what the single options cannot see.

        Raises:
            ArgumentError: options that are missing or contradict each other.
        """
        if self.out is None:
            raise ArgumentError("train needs --out DIR")
        if (self.data is None) != self.synthetic:
            raise ArgumentError("train needs either --data DIR or --synthetic")
        if self.warmup == "constant" and (not self.warmup_lr or self.schedule == "cyclic"):
            raise ArgumentError(
                "--warmup constant needs a --warmup-lr that it trains with, and another schedule "
                "than cyclic, whose cycles warm up gradually"
            )
        if self.accumulation > 1 and self.compile in GRAPHS:
            raise ArgumentError(
                f"--compile {self.compile} has CUDA graphs, which overwrite the gradients that "
                "--accumulation adds up: say --compile default"
            )
        if self.accumulation > self.batch_size_per_rank:
            raise ArgumentError(
                f"--accumulation {self.accumulation}: a batch of {self.batch_size_per_rank} has "
                "not that many parts"
            )
        if self.nesterov and (self.optimizer == "lars" or not self.momentum):
            raise ArgumentError("--nesterov needs --optimizer sgd and a --momentum")
        if self.backend is not None and self.strategy != "ddp":
            raise ArgumentError(f"--backend {self.backend} belongs to --strategy ddp")
        if self.resume not in ("never", "auto") and not Path(self.resume).is_file():
            raise ArgumentError(f"--resume {self.resume}: no such file (or say auto, or never)")


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = option(None, "folder of the packed data set (dataset.json)", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    batch_size: int = option(128, "images per step", BATCH)
    precision: str | None = option(None, "default: as trained", choices=PRECISIONS)
    device: str = option("auto", "auto: the GPU where there is one", choices=DEVICES)
    threads: int = option(
        DALI_THREADS, "threads of the input pipeline", THREADS, shown=THREADS_SHOWN
    )
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

    data: Path | None = option(None, "an image file, or a folder with such, at any depth", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    top: int = option(5, "classes to show per image", positive_int)
    batch_size: int = option(32, "images per step", BATCH)
    threads: int = option(
        DALI_THREADS, "threads of the input pipeline", THREADS, shown=THREADS_SHOWN
    )
    json: bool = option(False, "print one JSON array")

    def check(self) -> None:
        """Refuse missing options."""
        if self.data is None:
            raise ArgumentError("predict needs --data FILE|DIR")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("predict needs either --out DIR or --checkpoint FILE")


EXPORTS = {"onnx": ".onnx", "torchscript": ".pt"}


@dataclass(frozen=True)
class ExportSettings:
    """Options of `export`."""

    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    to: Path | None = option(None, "file to write, .onnx or .pt (TorchScript)", Path)
    format: str = option("onnx", "form of the network in it", choices=tuple(EXPORTS))
    image_size: int | None = option(
        None, "side in pixels of the images it will get (default: as trained)", positive_int
    )
    data: Path | None = option(
        None, "packed data set, to compare the two networks on its images too", Path
    )

    def check(self) -> None:
        """Refuse missing options, and a file that is there already."""
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("export needs either --out DIR or --checkpoint FILE")
        if self.to is None:
            raise ArgumentError("export needs --to FILE")
        if self.to.suffix != EXPORTS[self.format]:
            raise ArgumentError(
                f"--to {self.to}: the name of a file in the format {self.format} "
                f"ends with {EXPORTS[self.format]}"
            )
        if self.image_size is not None and not LEAST <= self.image_size <= MOST:
            raise ArgumentError(
                f"--image-size {self.image_size}: at least {LEAST} and at most {MOST} pixels"
            )
        atomic.check_new(self.to)
