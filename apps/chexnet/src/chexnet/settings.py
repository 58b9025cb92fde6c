"""The options of `train`, documented at their fields; `--help` is made from them."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainkit.exits import ArgumentError
from trainkit.options import (
    fraction,
    non_negative_float,
    non_negative_int,
    option,
    positive_float,
    positive_int,
    up_to,
)
from trainkit.tensorflow import STRATEGIES

IMAGENET = 1_281_167  # images to train with
BATCH = 8192  # of the published pre-training
MODELS = ("densenet121", "resnet50", "vgg16", "mobilenetv2", "small")
PRECISIONS = ("fp32", "bf16", "fp16")
OPTIMIZERS = ("adam", "sgd")
CROPS = ("whole", "random")
CROP = ("whole: an image is scaled to a square; random: of photographs, parts of 8 to 100 percent "
        "in a training, else the middle")
SCHEDULES = ("constant", "steps")
SCHEDULE = "of the rate; steps: a tenth after 1/3, 2/3 and 8/9 of the epochs"
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`; the defaults are CheXNet's, of one process."""

    data: Path | None = option(None, "folder of the packed images (dataset.json)", Path)
    out: Path | None = option(None, "folder of this run: metrics, checkpoints, result", Path)
    # The network, and what it begins with.
    model: str = option("densenet121", "the network", choices=MODELS)
    initial: Path | None = option(
        None, "first weights: a checkpoint of this app (.npz), a file that Keras publishes (.h5), "
        "or torchvision's MobileNetV2 (.pth); default: random", Path, metavar="FILE",
    )
    size: int = option(224, "side of the images, in pixels", up_to(1024))
    channels: str = option("3", "1: grey images; 3: colours", choices=("1", "3"))
    # How long, and how many images at once.
    epochs: int = option(10, "passes over the images", positive_int)
    frozen_epochs: int = option(
        0, "of these, the first ones, in which only the last layers are trained", non_negative_int
    )
    max_steps: int | None = option(None, "end after this many steps", positive_int)
    batch_size_per_rank: int = option(16, "images per step and process", positive_int)
    accumulation: int = option(
        1, "parts in which a process takes its batch: memory, not the batch", positive_int
    )
    # The loss and the optimizers.
    weighted: bool = option(True, "findings and their absence have equal weight in the loss")
    optimizer: str = option("adam", "Adam (0.9, 0.999), or SGD with momentum 0.9",
                            choices=OPTIMIZERS)
    base_lr: float = option(0.001, "learning rate of the last layers", positive_float)
    initial_rate: bool = option(
        False, "begin with the rate at which the checkpoint --initial was written, not --base-lr"
    )
    body_lr: float | None = option(
        None, "learning rate of the body, once it is trained (default: the same)", positive_float
    )
    base_batch: int | None = option(
        None, "global batch of these rates: they grow with the batch (default: they do not)",
        positive_int,
    )
    warmup_images: int = option(
        0, "images over which the rate rises to its value; those of --base-batch where it is said: "
        "they grow with the batch", non_negative_int,
    )
    schedule: str = option("constant", SCHEDULE, choices=SCHEDULES)
    weight_decay: float = option(0.0, "decay of the weights of convolutions and dense layers, per "
                                 "step and rate", non_negative_float)
    statistics: bool = option(
        True, "batch normalization follows the new images, once the body is trained"
    )
    # What the validation decides.
    patience: int = option(
        0, "evaluations without a better AUROC until the rate falls; 0: never", non_negative_int
    )
    drop: float = option(0.1, "factor by which it then falls", fraction)
    stop_after: int = option(
        0, "evaluations without a better AUROC until the training ends; 0: never", non_negative_int
    )
    augment: bool = option(True, "mirror, shift and scale the images of a training")
    crop: str = option("whole", CROP, choices=CROPS)
    # Precision and speed.
    precision: str = option("fp32", "bf16 and fp16: weights and loss stay fp32", choices=PRECISIONS)
    threads: int = option(
        CORES, "cores of one operation (intra-op)", up_to(1024), shown="the usable cores"
    )
    inter_threads: int = option(1, "operations at a time (inter-op)", up_to(1024))
    decoders: int = option(2, "images that are decoded at a time", up_to(1024))
    seed: int = option(17, "seeds weights, order and augmentation", non_negative_int)
    profile: int = option(
        0, "steps to profile after the first three: where the time goes; 0: none", non_negative_int
    )
    # The ranks.
    strategy: str = option("single", "how ranks work together", choices=STRATEGIES)
    watchdog: int = option(
        300,
        "seconds without progress after which ranks that hang are ended, and named; 0: never",
        non_negative_int,
    )
    device: str = option("auto", "auto: the GPU of this rank where there is one",
                         choices=("auto", "cpu", "gpu"))
    # Checkpoints and reports.
    resume: str = option(
        "never", "never; auto: go on from the newest checkpoint in --out; or a checkpoint file",
        metavar="never|auto|FILE",
    )
    checkpoint_every: int | None = option(
        None, "steps between checkpoints (default: at the end of each epoch only)", positive_int
    )
    keep: int = option(2, "checkpoints to keep", positive_int)
    eval_every: int = option(1, "epochs between evaluations; 0: never", non_negative_int)
    test: bool = option(False, "at the end, scores on the split test, which decides nothing")
    log_every: int = option(20, "steps between lines of progress", positive_int)
    synthetic: bool = option(False, "random images instead of --data: pure compute throughput")

    def check(self) -> None:
        """Refuse what the single options cannot see.

        Raises:
            ArgumentError: options that are missing or contradict each other.
        """
        if self.out is None:
            raise ArgumentError("train needs --out DIR")
        if (self.data is None) != self.synthetic:
            raise ArgumentError("train needs either --data DIR or --synthetic")
        if self.test and self.synthetic:
            raise ArgumentError("--test needs --data DIR with a split test")
        if self.size < 32:
            raise ArgumentError(f"--size {self.size}: the networks need at least 32 pixels")
        if self.frozen_epochs > self.epochs:
            raise ArgumentError(
                f"--frozen-epochs {self.frozen_epochs} are more than --epochs {self.epochs}"
            )
        if self.accumulation > self.batch_size_per_rank:
            raise ArgumentError(
                f"--batch-size-per-rank {self.batch_size_per_rank} has no {self.accumulation} parts"
            )
        if self.initial_rate and (self.initial is None or self.initial.suffix != ".npz"):
            raise ArgumentError("--initial-rate needs --initial CHECKPOINT.npz")
        if self.initial is not None and not self.initial.is_file():
            raise ArgumentError(f"--initial {self.initial}: no such file")
        if self.resume not in ("never", "auto") and not Path(self.resume).is_file():
            raise ArgumentError(f"--resume {self.resume}: no such file (or say auto, or never)")


@dataclass(frozen=True)
class PretrainSettings(TrainSettings):
    """Options of `pretrain`: those of `train`, with what ImageNet from random weights takes.

    Goyal et al., arXiv:1706.02677, section 5.1: SGD, 0.1 for a batch of 256, a tenth of it after
    30, 60 and 80 of 90 epochs, random parts of the images; warm-up over five epochs, these at the
    published batch of 8,192, and in proportion to it at others (PRACE guide, section 6.4).
    """

    epochs: int = option(90, "passes over the images", positive_int)
    optimizer: str = option("sgd", "Adam (0.9, 0.999), or SGD with momentum 0.9",
                            choices=OPTIMIZERS)
    base_lr: float = option(0.1, "learning rate", positive_float)
    base_batch: int | None = option(256, "global batch of this rate: it grows with the batch",
                                    positive_int)
    warmup_images: int = option(
        5 * IMAGENET * 256 // BATCH, "images of --base-batch over which the rate rises to its "
        "value; they grow with the batch", non_negative_int
    )
    weight_decay: float = option(1e-4, "decay of the weights of convolutions and dense layers, per "
                                 "step and rate", non_negative_float)
    schedule: str = option("steps", SCHEDULE, choices=SCHEDULES)
    crop: str = option("random", CROP, choices=CROPS)


@dataclass(frozen=True)
class FitSettings:
    """Options of `fit`: those of `train` that Keras's own loop has, too."""

    data: Path | None = option(None, "folder of the packed images (dataset.json)", Path)
    out: Path | None = option(None, "folder of this run: metrics, result", Path)
    model: str = option("densenet121", "the network", choices=("densenet121", "resnet50"))
    size: int = option(224, "side of the images, in pixels", up_to(1024))
    channels: str = option("3", "1: grey images; 3: colours", choices=("1", "3"))
    epochs: int = option(1, "passes over the images", positive_int)
    max_steps: int | None = option(None, "end each pass after this many steps", positive_int)
    batch_size_per_rank: int = option(16, "images per step and process", positive_int)
    base_lr: float = option(0.001, "learning rate of Adam", positive_float)
    augment: bool = option(True, "mirror, shift and scale the images")
    precision: str = option("fp32", "bf16: weights and loss stay fp32", choices=("fp32", "bf16"))
    threads: int = option(
        CORES, "cores of one operation (intra-op)", up_to(1024), shown="the usable cores"
    )
    inter_threads: int = option(1, "operations at a time (inter-op)", up_to(1024))
    decoders: int = option(2, "images that are decoded at a time", up_to(1024))
    seed: int = option(17, "seeds weights, order and augmentation", non_negative_int)
    strategy: str = option("single", "how ranks work together", choices=STRATEGIES)
    device: str = option("auto", "auto: the GPU of this rank where there is one",
                         choices=("auto", "cpu", "gpu"))
    log_every: int = option(20, "steps between lines of progress", positive_int)
    synthetic: bool = option(False, "random images instead of --data: pure compute throughput")

    def check(self) -> None:
        """Refuse missing options.

        Raises:
            ArgumentError: there is no --out, or not one of --data and --synthetic.
        """
        if self.out is None:
            raise ArgumentError("fit needs --out DIR")
        if (self.data is None) != self.synthetic:
            raise ArgumentError("fit needs either --data DIR or --synthetic")
        if self.size < 32:
            raise ArgumentError(f"--size {self.size}: the networks need at least 32 pixels")
