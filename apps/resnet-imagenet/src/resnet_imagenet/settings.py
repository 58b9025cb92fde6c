"""The options of all commands, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from resnet_imagenet.image_size_schedule import LEAST, MOST, ImageSizes, image_sizes
from trainkit import atomic, common_options
from trainkit.common_options import check_checkpoint, check_training
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
from trainkit.torch import AUTO, BACKENDS, COMPRESSIONS, STRATEGIES
from trainkit.zoo import options as zoo

MODELS = ("resnet20", "resnet32", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
OTHERS = ("alexnet", "googlenet", "vgg16", "vgg19", "densenet121", "mobilenetv2")
"""The networks besides ResNets that `benchmark` can measure."""
ZOO = ("resnet50", "resnet101", "resnet152", *OTHERS)
"""The networks that `benchmark` measures by default."""
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
WARMUPS = ("gradual", "constant")
SCHEDULES = ("constant", "step", "polynomial", "cosine", "cyclic")
OPTIMIZERS = ("sgd", "lars")
COMPILE = ("off", "default", "reduce-overhead", "max-autotune")
GRAPHS = ("reduce-overhead", "max-autotune")
DALI_THREADS = min(4, common_options.USABLE_CORES)
WARMUP_EPOCHS = 5.0  # the default, for the default `epochs`
BATCH = up_to(1 << 20)


def input_threads() -> Any:
    """Return the option --threads of the input pipeline."""
    return option(
        DALI_THREADS, "threads of the input pipeline", up_to(1024),
        shown="one per usable core, at most 4",
    )


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    RENAMED: ClassVar[dict[str, str]] = {"engine": "strategy"}

    data: Path | None = common_options.data("data set")
    out: Path | None = common_options.run_folder()
    # The network.
    model: str = option("resnet50", "network", choices=MODELS)
    stem: Literal["imagenet", "small"] | None = option(
        None,
        "first layers: 7x7 with stride 2 and max-pooling, or 3x3 (default: that of the model)",
        choices=("imagenet", "small"),
    )
    bn_momentum: float = option(
        0.1,
        "weight of the newest batch in the moving averages of batch normalization (1 minus Caffe's "
        "moving average fraction)",
        fraction,
    )
    sync_bn: bool = option(False, "batch statistics over all ranks instead of each rank (GPUs)")
    ema_decay: float = option(
        0.0, "decay of a moving average of the weights, which is then evaluated; 0: none", fraction
    )
    # The length of the training, and the batch.
    epochs: int = option(90, "passes over the training images", positive_int)
    steps: int | None = option(None, "train this many steps instead of --epochs", positive_int)
    max_steps: int | None = common_options.max_steps(
        "; the schedule still spans the whole training"
    )
    batch_size_per_rank: int = option(256, "images per step and rank", BATCH)
    accumulation: int = option(
        1,
        "micro-batches per step and rank, each with batch statistics of its own: the same training "
        "as with that many times the ranks",
        positive_int,
    )
    # The learning rate.
    base_lr: float = option(0.256, "peak learning rate", positive_float)
    base_batch: int | None = option(
        None,
        "global batch of --base-lr, which scales linearly with the batch (default: no scaling)",
        positive_int,
    )
    warmup: str = option(
        "gradual", "before the peak: linear from --warmup-lr, or constant at it", choices=WARMUPS
    )
    warmup_epochs: float | None = option(
        None,
        "epochs of warm-up (default: 5; if the training is shorter, 5/90 of it)",
        non_negative_float,
    )
    warmup_steps: int | None = option(
        None, "steps of warm-up, instead of --warmup-epochs", non_negative_int
    )
    warmup_lr: float = option(0.0, "learning rate of the first warm-up step", non_negative_float)
    schedule: str = option("cosine", "decay after the warm-up", choices=SCHEDULES)
    power: float = option(2.0, "power of the polynomial and cyclic schedules", positive_float)
    milestones: tuple[float, ...] = option(
        (30.0, 60.0, 80.0), "epochs after which the step schedule divides by ten", increasing
    )
    cycle_epochs: float = option(
        20.0, "epochs of a cycle of the cyclic schedule, including its warm-up", positive_float
    )
    # The optimizer.
    optimizer: str = option("sgd", "SGD with momentum, or LARS", choices=OPTIMIZERS)
    momentum: float = option(0.875, "momentum", fraction)
    nesterov: bool = option(False, "Nesterov's momentum (SGD)")
    trust: float = option(0.001, "trust coefficient of LARS", positive_float)
    weight_decay: float = option(
        3.0517578125e-05, "L2 penalty, except on biases and batch normalization", non_negative_float
    )
    label_smoothing: float = option(0.1, "share of the target spread over all classes", fraction)
    initial: Path | None = option(
        None, "checkpoint with the initial weights, for a second stage", Path
    )
    # Precision and speed.
    precision: str = option(
        AUTO,
        "bf16 and fp16 are autocast, weights stay fp32; fp16 scales the loss; tf32: GPUs; "
        "auto: bf16 if all devices have instructions for it, else fp32",
        choices=(AUTO, *PRECISIONS),
    )
    compile: str = option(
        "off",
        "mode of torch.compile, which needs a C++ compiler, and on a GPU also Triton: images on a "
        "torch-*-dev framework have them; reduce-overhead uses CUDA graphs",
        choices=COMPILE,
    )
    compile_cache: Path | None = option(
        None, "folder for compiled code, to reuse in later runs (default: that of the image, which "
        "a run removes at its end; outside of an image: in --out)", Path
    )
    deterministic: bool = option(
        False, "equal settings give bit-identical weights on GPUs, too (on CPUs they always do)"
    )
    image_size: ImageSizes | None = option(
        None,
        "side in pixels, or SIZE:EPOCH,… for progressive resizing, such as 128:0,160:12,224:24 "
        "(default: 224, or the size of a data set of small images)",
        image_sizes,
        metavar="SIZES",
    )
    scale_augmentation: bool = option(
        True, "random scale and aspect ratio of photographs; without it only position and flip"
    )
    max_bad_records: int = option(
        0, "undecodable records to tolerate; each is named and replaced by its neighbour",
        non_negative_int,
    )
    stage: Path | None = option(
        None, "node-local folder to which the shards are copied before the training", Path
    )
    seed: int = common_options.seed("seed of weights, order and augmentation")
    threads: int = input_threads()
    # The ranks.
    strategy: str = common_options.strategy(STRATEGIES)
    backend: str | None = common_options.backend(BACKENDS)
    compression: str = common_options.compression(COMPRESSIONS)
    ranks: int | None = option(
        None,
        "ranks for which batch and accumulation are given; fewer ranks, as after the loss of a "
        "node, share their work (default: the ranks of the job)",
        positive_int,
    )
    watchdog: int = common_options.watchdog()
    device: str = common_options.rank_device()
    # Checkpoints and reports.
    resume: str = common_options.resume()
    checkpoint_every: int | None = common_options.checkpoint_every()
    keep: int = common_options.keep()
    eval_every: int = common_options.eval_every()
    log_every: int = common_options.log_every(50)
    synthetic: bool = common_options.synthetic("one random batch")
    profile: int = common_options.profile("ten")

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_training(self)
        if self.warmup == "constant" and (not self.warmup_lr or self.schedule == "cyclic"):
            raise ArgumentError(
                "--warmup constant needs a --warmup-lr, and another schedule than cyclic, whose "
                "cycles warm up gradually",
                code="arguments-conflict",
            )
        if self.accumulation > 1 and self.compile in GRAPHS:
            raise ArgumentError(
                f"--compile {self.compile} uses CUDA graphs, which overwrite the gradients that "
                "--accumulation adds up: use --compile default",
                code="arguments-conflict",
            )
        if self.accumulation > self.batch_size_per_rank:
            raise ArgumentError(
                f"--accumulation {self.accumulation}: a batch of {self.batch_size_per_rank} has "
                "not that many parts",
                code="arguments-conflict",
            )
        if self.nesterov and (self.optimizer == "lars" or not self.momentum):
            raise ArgumentError(
                "--nesterov needs --optimizer sgd and a --momentum", code="arguments-conflict"
            )


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = common_options.data("data set")
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    batch_size: int = option(128, "images per step", BATCH)
    precision: str | None = option(
        None, "precision of the network (default: as trained)", choices=PRECISIONS
    )
    device: str = common_options.device()
    threads: int = input_threads()
    json: bool = common_options.json()

    def check(self) -> None:
        """Refuse missing options.

        Raises:
            ArgumentError: an option is missing.
        """
        check_checkpoint(self, "evaluate", data="DIR")


@dataclass(frozen=True)
class PredictSettings:
    """Options of `predict`."""

    data: Path | None = option(None, "image file, or folder with image files at any depth", Path)
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    top: int = option(5, "classes to show per image", positive_int)
    batch_size: int = option(32, "images per step", BATCH)
    threads: int = input_threads()
    json: bool = common_options.json("one JSON array")

    def check(self) -> None:
        """Refuse missing options.

        Raises:
            ArgumentError: an option is missing.
        """
        check_checkpoint(self, "predict", data="FILE|DIR")


EXPORTS = {"onnx": ".onnx", "torchscript": ".pt"}


@dataclass(frozen=True)
class ExportSettings:
    """Options of `export`."""

    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    to: Path | None = option(None, "file to write, .onnx or .pt (TorchScript)", Path)
    format: str = option("onnx", "format of the file", choices=tuple(EXPORTS))
    image_size: int | None = option(
        None, "side of the images in pixels (default: as trained)", positive_int
    )
    data: Path | None = option(
        None, "folder of a packed data set on whose images to compare both networks, too", Path
    )

    def check(self) -> None:
        """Refuse missing options, and an output file that already exists.

        Raises:
            ArgumentError: an option is missing, or the output file cannot be written.
        """
        check_checkpoint(self, "export")
        if self.to is None:
            raise ArgumentError("export needs --to FILE", code="argument-missing")
        if self.to.suffix != EXPORTS[self.format]:
            raise ArgumentError(
                f"--to {self.to}: the name of a file in the format {self.format} "
                f"ends with {EXPORTS[self.format]}",
                code="argument-invalid",
            )
        if self.image_size is not None and not LEAST <= self.image_size <= MOST:
            raise ArgumentError(
                f"--image-size {self.image_size}: at least {LEAST} and at most {MOST} pixels",
                code="argument-invalid",
            )
        atomic.check_new(self.to)


@dataclass(frozen=True)
class BenchmarkSettings(zoo.BenchmarkSettings):
    """Options of `benchmark`; most are in `trainkit.zoo.options`."""

    LEAST_SIZE = LEAST
    models: list[str] | None = zoo.models(ZOO, "networks", choices=(*MODELS, *OTHERS))
    precision: str = option(
        AUTO, "bf16 is autocast, weights stay fp32; tf32: GPUs; auto: bf16 if the device has "
        "instructions for it, else fp32", choices=(AUTO, "fp32", "tf32", "bf16"),
    )
