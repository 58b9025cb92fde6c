"""The options of all commands, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit import atomic, common_options
from trainkit.common_options import check_checkpoint, check_picture, check_training
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

IMAGENET = 1_281_167  # number of training images
BATCH = 8192  # global batch of the published pre-training
MODELS = ("densenet121", "resnet50", "vgg16", "mobilenetv2", "small")
PRECISIONS = ("fp32", "bf16", "fp16")
OPTIMIZERS = ("adam", "sgd")
CROPS = ("whole", "random")
SCHEDULES = ("constant", "steps")
MODEL = "network architecture"
SIZE = "side of the images, in pixels"
CHANNELS = "1: grey images; 3: colour images"
EPOCHS = "passes over the training images"
PER_RANK = "images per step and rank"
OPTIMIZER = "Adam (0.9, 0.999), or SGD with momentum 0.9"
WEIGHT_DECAY = "weight decay of convolutions and dense layers, per step and learning rate"
SCHEDULE = "learning-rate schedule; steps: a tenth after 1/3, 2/3 and 8/9 of the epochs"
CROP = ("whole: scale an image to a square; random: crops of 8 to 100 percent of a photograph in "
        "the training, the centre in an evaluation")
DECODERS = "images that are decoded in parallel"
SEED = "seed of weights, order and augmentation"


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`; the defaults are the settings of the CheXNet paper, for one process."""

    data: Path | None = common_options.data("images")
    out: Path | None = common_options.run_folder()
    # The network and its initial weights.
    model: str = option("densenet121", MODEL, choices=MODELS)
    initial: Path | None = option(
        None, "initial weights: a checkpoint of this app (.npz), a file published by Keras (.h5), "
        "or torchvision's MobileNetV2 (.pth); default: random", Path, metavar="FILE",
    )
    size: int = option(224, SIZE, up_to(1024))
    channels: str = option("3", CHANNELS, choices=("1", "3"))
    # The length of the training, and the batch.
    epochs: int = option(10, EPOCHS, positive_int)
    frozen_epochs: int = option(
        0, "first epochs, in which only the head is trained", non_negative_int
    )
    max_steps: int | None = common_options.max_steps()
    batch_size_per_rank: int = option(16, PER_RANK, positive_int)
    accumulation: int = option(
        1, "micro-batches per step and rank; they change the memory, not the batch", positive_int
    )
    # The loss and the optimizers.
    weighted: bool = option(True, "presence and absence of a finding have equal weight in the loss")
    optimizer: str = option("adam", OPTIMIZER, choices=OPTIMIZERS)
    base_lr: float = option(0.001, "learning rate of the head", positive_float)
    initial_rate: bool = option(
        False, "use the learning rate that the checkpoint --initial records instead of --base-lr"
    )
    body_lr: float | None = option(
        None, "learning rate of the body after the frozen epochs (default: that of the head)",
        positive_float,
    )
    base_batch: int | None = option(
        None, "global batch of these learning rates, which scale linearly with the batch (default: "
        "no scaling)", positive_int,
    )
    warmup_images: int = option(
        0, "images over which the learning rate rises to its value; with --base-batch for a batch "
        "of that size, and proportionally more for a larger one", non_negative_int,
    )
    schedule: str = option("constant", SCHEDULE, choices=SCHEDULES)
    weight_decay: float = option(0.0, WEIGHT_DECAY, non_negative_float)
    statistics: bool = option(
        True, "update the batch statistics of the body after the frozen epochs"
    )
    # Decisions based on the validation.
    patience: int = option(
        0, "evaluations without a better AUROC until the learning rate drops; 0: never",
        non_negative_int,
    )
    drop: float = option(0.1, "factor of the learning rate at a drop", fraction)
    stop_after: int = option(
        0, "evaluations without a better AUROC until the training ends; 0: never", non_negative_int
    )
    augment: bool = option(True, "mirror, shift and scale the training images")
    crop: str = option("whole", CROP, choices=CROPS)
    # Precision and speed.
    precision: str = option("fp32", "bf16 and fp16: weights and loss stay fp32", choices=PRECISIONS)
    threads: int = option(
        common_options.USABLE_CORES, "threads of one operation (intra-op)", up_to(1024),
        shown="the usable cores",
    )
    inter_threads: int = common_options.count(1, "operations in parallel (inter-op)")
    decoders: int = common_options.count(2, DECODERS)
    seed: int = common_options.seed(SEED)
    profile: int = common_options.profile("three")
    # The ranks.
    strategy: str = common_options.strategy(STRATEGIES)
    watchdog: int = common_options.watchdog()
    device: str = common_options.rank_device()
    # Checkpoints and reports.
    resume: str = common_options.resume()
    checkpoint_every: int | None = common_options.checkpoint_every()
    keep: int = common_options.keep()
    eval_every: int = common_options.eval_every()
    test: bool = option(False, "evaluate on the split test after the training")
    log_every: int = common_options.log_every(20)
    synthetic: bool = common_options.synthetic("random images")

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_training(self)
        if self.test and self.synthetic:
            raise ArgumentError(
                "--test needs --data DIR with a split test", code="argument-missing"
            )
        _check_size(self.size)
        if self.frozen_epochs > self.epochs:
            raise ArgumentError(
                f"--frozen-epochs {self.frozen_epochs} are more than --epochs {self.epochs}",
                code="arguments-conflict",
            )
        if self.accumulation > self.batch_size_per_rank:
            raise ArgumentError(
                f"--batch-size-per-rank {self.batch_size_per_rank} has no "
                f"{self.accumulation} parts",
                code="arguments-conflict",
            )
        if self.initial_rate and (self.initial is None or self.initial.suffix != ".npz"):
            raise ArgumentError(
                "--initial-rate needs --initial CHECKPOINT.npz", code="argument-missing"
            )
        if self.initial is not None and not self.initial.is_file():
            raise ArgumentError(f"--initial {self.initial}: no such file", code="file-missing")


@dataclass(frozen=True)
class PretrainSettings(TrainSettings):
    """Options of `pretrain`: options of `train` with defaults for ImageNet and random weights.

    The defaults follow Goyal et al., arXiv:1706.02677, section 5.1: SGD, random crops, and a
    learning rate of 0.1 for a batch of 256 images. The rate is divided by 10 after 30, 60 and 80 of
    90 epochs. The length of the warm-up is proportional to the global batch: five epochs for the
    published batch of 8,192 (PRACE guide, section 6.4).
    """

    epochs: int = option(90, EPOCHS, positive_int)
    optimizer: str = option("sgd", OPTIMIZER, choices=OPTIMIZERS)
    base_lr: float = option(0.1, "learning rate", positive_float)
    base_batch: int | None = option(
        256, "global batch of this learning rate, which scales linearly with the batch",
        positive_int,
    )
    warmup_images: int = option(
        5 * IMAGENET * 256 // BATCH, "images over which the learning rate rises to its value for a "
        "batch of --base-batch; proportionally more for a larger batch", non_negative_int
    )
    weight_decay: float = option(1e-4, WEIGHT_DECAY, non_negative_float)
    schedule: str = option("steps", SCHEDULE, choices=SCHEDULES)
    crop: str = option("random", CROP, choices=CROPS)


@dataclass(frozen=True)
class FitSettings:
    """Options of `fit`: the options of `train` that the training loop of Keras supports."""

    data: Path | None = common_options.data("images")
    out: Path | None = common_options.run_folder("metrics, result")
    model: str = option("densenet121", MODEL, choices=("densenet121", "resnet50"))
    size: int = option(224, SIZE, up_to(1024))
    channels: str = option("3", CHANNELS, choices=("1", "3"))
    epochs: int = option(1, EPOCHS, positive_int)
    max_steps: int | None = option(None, "end each epoch after this many steps", positive_int)
    batch_size_per_rank: int = option(16, PER_RANK, positive_int)
    base_lr: float = option(0.001, "learning rate of Adam", positive_float)
    augment: bool = option(True, "mirror, shift and scale the images")
    precision: str = option("fp32", "bf16: weights and loss stay fp32", choices=("fp32", "bf16"))
    threads: int = option(
        common_options.USABLE_CORES, "threads of one operation (intra-op)", up_to(1024),
        shown="the usable cores",
    )
    inter_threads: int = common_options.count(1, "operations in parallel (inter-op)")
    decoders: int = common_options.count(2, DECODERS)
    seed: int = common_options.seed(SEED)
    strategy: str = common_options.strategy(STRATEGIES)
    device: str = common_options.rank_device()
    log_every: int = common_options.log_every(20)
    synthetic: bool = common_options.synthetic("random images")

    def check(self) -> None:
        """Check the options.

        Raises:
            ArgumentError: an option is missing, options contradict each other, or images are
                too small.
        """
        check_training(self, "fit")
        _check_size(self.size)


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = common_options.data("images")
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    split: str | None = option(None, "split to evaluate on (default: test, else val)")
    ten_crop: bool = option(
        False, "average over ten crops of an image: corners and centre, also mirrored"
    )
    batch_size: int = option(32, "images at a time", positive_int)
    decoders: int = common_options.count(2, DECODERS)
    draws: int = option(
        1000, "bootstrap samples for the confidence intervals; 0: no intervals", non_negative_int
    )
    seed: int = common_options.seed("seed of the bootstrap samples")
    device: str = common_options.device()
    json: bool = common_options.json()
    plot: Path | None = option(
        None, "picture to write, .png, .svg or .pdf: ROC curves and calibration", Path,
        metavar="FILE",
    )

    def check(self) -> None:
        """Refuse missing options, and an output picture whose file already exists.

        Raises:
            ArgumentError: an option is missing, or the picture exists or cannot be written.
        """
        check_checkpoint(self, "evaluate", data="DIR")
        if self.plot is not None:
            check_picture(self.plot)


@dataclass(frozen=True)
class PredictSettings:
    """Options of `predict`."""

    data: list[Path] | None = option(
        None, "X-rays: PNG, JPEG or DICOM files", Path, metavar="FILE", nargs="+"
    )
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    findings: list[str] | None = option(
        None, "findings to draw (default: the three most likely ones of each image)",
        metavar="NAME", nargs="+",
    )
    device: str = common_options.device()
    json: bool = common_options.json()
    to: Path | None = option(
        None, "picture to write, .png, .svg or .pdf: the regions that indicate each finding", Path,
        metavar="FILE",
    )

    def check(self) -> None:
        """Refuse missing options, and an output picture whose file already exists.

        Raises:
            ArgumentError: an option is missing, or the picture exists or cannot be written.
        """
        check_checkpoint(self, "predict", data="FILE [FILE ...]")
        if self.to is not None:
            check_picture(self.to)


@dataclass(frozen=True)
class ExportSettings:
    """Options of `export`."""

    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    to: Path | None = option(None, "ONNX file, or folder of the SavedModel, to write", Path)
    format: str = option("onnx", "format to write", choices=("onnx", "savedmodel"))
    data: Path | None = option(
        None, "folder of packed images on which to compare both networks, beside random ones", Path
    )

    def check(self) -> None:
        """Refuse missing options, and an output path that already exists.

        Raises:
            ArgumentError: an option is missing, or `to` exists or cannot be written.
        """
        if self.to is None:
            raise ArgumentError("export needs --to PATH", code="argument-missing")
        check_checkpoint(self, "export")
        atomic.check_new(self.to)


def _check_size(size: int) -> None:
    if size < 32:
        raise ArgumentError(
            f"--size {size}: the networks need at least 32 pixels", code="argument-invalid"
        )
