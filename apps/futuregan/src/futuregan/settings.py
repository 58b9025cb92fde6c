"""The options of `train`, `evaluate` and `predict`, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from futuregan.growth import BatchSizes, batch_sizes
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
from trainkit.torch import AUTO, BACKENDS, COMPRESSIONS, STRATEGIES

LOSSES = ("wgan-gp", "lsgan", "gan")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SIZES = ("4", "8", "16", "32", "64", "128", "256", "512")
THREADS = min(4, common_options.USABLE_CORES)
SUFFIXES = (".gif", ".mp4", ".png")
MAX_FRAMES = 1000  # largest number of frames to predict, because all are held in memory
STRIDE = "frames between the beginnings of two clips (default: the length of one)"
LONG = ("frames to predict; the generator predicts those beyond the trained number from frames "
        "that it predicted before (default: the trained number)")


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`.

    The defaults are the values of arXiv:1810.01325. Values that this paper does not give come from
    arXiv:1710.10196, on which the paper is based: the decay of the moving average from appendix
    A.1, and the groups of four clips from the published program. `--precision auto` trains faster
    on devices for which it selects bf16.
    """

    data: Path | None = common_options.data("sequences")
    out: Path | None = common_options.run_folder()
    # The prediction task.
    past: int = option(6, "number of input frames", up_to(64))
    future: int = option(6, "number of frames to predict", up_to(64))
    every: int = option(1, "use only every N-th frame of a sequence", up_to(1000))
    stride: int | None = option(None, STRIDE, positive_int)
    size: str = option("128", "side of the frames at the end, in pixels", choices=SIZES)
    first_size: str = option("4", "side of the frames that are trained first", choices=SIZES)
    # The networks.
    width: int = option(
        512, "features up to 32 pixels; half as many after each doubling of the side", up_to(4096)
    )
    base_size: str = option(
        "4", "side of the feature maps between encoder and decoder of both networks", choices=SIZES
    )
    residual: bool = option(
        False, "the generator predicts the difference from the last frame instead of the frame"
    )
    skip: int = option(
        0, "features of the skip connections from the generator's encoder to its decoder at each "
        "size; 0: no skip connections", non_negative_int,
    )
    stddev_group: int = option(
        4, "clips in a group of the minibatch standard deviation; a rank with fewer clips uses "
        "those of all ranks", up_to(4096),
    )
    ema_decay: float = option(
        0.999, "decay of the moving average of the generator, which is evaluated; 0: none", fraction
    )
    # The length of the training, and the batch.
    transition_epochs: int = option(10, "epochs in which a new resolution is faded in",
                                    non_negative_int)
    stabilization_epochs: int = option(10, "epochs at each full resolution", positive_int)
    epochs: int | None = option(
        None, "passes over the clips in total; the last resolution gets the remaining ones "
        "(default: the sum of the two options above over all resolutions)", positive_int,
    )
    max_steps: int | None = common_options.max_steps()
    batch_size_per_rank: BatchSizes = option(
        BatchSizes(((4, 8),)), "clips per step and rank, or one number for each side of the "
        "frames, such as 4:32,16:16,64:4", batch_sizes, metavar="COUNT|SIZE:COUNT,…",
    )
    micro_batch: int | None = option(
        None, "largest number of clips that a rank processes at once, in whole groups of "
        "--stddev-group; changes the memory, not the losses (default: the batch)", positive_int,
    )
    # The losses.
    loss: str = option("wgan-gp", "adversarial loss", choices=LOSSES)
    penalty: float = option(10.0, "weight of the gradient penalty (wgan-gp)", non_negative_float)
    drift: float = option(0.001, "weight of the squared scores (wgan-gp)", non_negative_float)
    reconstruction: float = option(
        0.0, "weight of the mean squared error in the generator's loss", non_negative_float
    )
    pretraining_epochs: int = option(
        0, "first epochs, in which the generator learns from the mean squared error alone, without "
        "a discriminator, which takes most of the time of a step", non_negative_int,
    )
    # The optimizers.
    base_lr: float = option(0.001, "initial learning rate of both networks", positive_float)
    lr_decay: float = option(0.87, "factor of the learning rate at each growth", positive_float)
    # Precision and speed.
    precision: str = option(
        AUTO, "bf16 and fp16 are autocast, weights and gradient penalty stay fp32; tf32: GPUs; "
        "auto: bf16 if all devices have instructions for it, else fp32",
        choices=(AUTO, *PRECISIONS),
    )
    threads: int = option(
        THREADS, "threads that decode frames", up_to(1024), shown="one per usable core, at most 4"
    )
    frame_cache: int = option(2048, "MB of decoded frames to keep in memory", positive_int)
    seed: int = common_options.seed(
        "seed of the weights, the order of the clips and the points of the gradient penalty"
    )
    # The ranks.
    strategy: str = common_options.strategy(STRATEGIES)
    backend: str | None = common_options.backend(BACKENDS)
    compression: str = common_options.compression(COMPRESSIONS)
    watchdog: int = common_options.watchdog()
    device: str = common_options.rank_device()
    # Checkpoints and reports.
    resume: str = common_options.resume()
    checkpoint_every: int | None = common_options.checkpoint_every()
    keep: int = common_options.keep()
    eval_every: int = common_options.eval_every()
    log_every: int = common_options.log_every(50)
    synthetic: bool = common_options.synthetic("random clips")
    profile: int = common_options.profile("ten")

    @property
    def micro_batch_sizes(self) -> BatchSizes:
        """Maximum number of clips that a rank processes at once, for each frame size in pixels."""
        return self.batch_size_per_rank.at_most(self.micro_batch)

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_training(self)
        if not int(self.base_size) <= int(self.first_size) <= int(self.size):
            raise ArgumentError(
                f"--base-size {self.base_size}, --first-size {self.first_size} and --size "
                f"{self.size} must not fall",
                code="arguments-conflict",
            )
        if self.pretraining_epochs and not self.reconstruction:
            raise ArgumentError(
                f"--pretraining-epochs {self.pretraining_epochs} needs a --reconstruction: without "
                "a discriminator there is nothing else to learn from",
                code="arguments-conflict",
            )


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = common_options.data("sequences")
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    long: int | None = option(None, LONG, up_to(MAX_FRAMES))
    every: int | None = option(
        None, "use only every N-th frame of a sequence (default: as trained)", up_to(1000)
    )
    stride: int | None = option(None, STRIDE, positive_int)
    batch_size: int = option(16, "clips at once", up_to(1 << 16))
    device: str = common_options.device()
    json: bool = common_options.json()
    plot: Path | None = option(
        None, "picture to write of the scores of each frame, .png, .svg or .pdf", Path
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

    data: Path | None = option(
        None, "a video, a folder of frames (in the order of the numbers in their names), or a "
        "folder of packed sequences (dataset.json)", Path, metavar="FILE|DIR",
    )
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    to: list[Path] | None = option(
        None, "files to write: .gif and .mp4 are animations, .png shows all frames on one sheet",
        Path, metavar="FILE", nargs="+",
    )
    clip: list[int] | None = option(
        None, "clips to predict: of packed sequences their numbers, else the numbers of their "
        "first frames (default: 0)", non_negative_int, metavar="NUMBER", nargs="+",
    )
    split: str | None = option(None, "split of packed sequences (default: val, else test)")
    long: int | None = option(None, LONG, up_to(MAX_FRAMES))
    every: int | None = option(
        None, "use only every N-th frame (default: as trained)", up_to(1000)
    )
    fps: int = option(5, "frames per second of an animation", up_to(60))
    scale: int | None = option(
        None, "side of a frame's pixel in the picture (default: frames of at least 128 pixels)",
        up_to(32),
    )
    device: str = common_options.device()

    def check(self) -> None:
        """Raise an error for missing options, and for files that already exist.

        Raises:
            ArgumentError: an option is missing, or a file cannot be written.
        """
        check_checkpoint(self, "predict", data="FILE|DIR")
        if not self.to:
            raise ArgumentError("predict needs --to FILE [FILE ...]", code="argument-missing")
        for path in self.to:
            if path.suffix not in SUFFIXES:
                raise ArgumentError(
                    f"--to {path}: the name must end with {', '.join(SUFFIXES)}",
                    code="argument-invalid",
                )
            atomic.check_new(path)
        if len(set(self.to)) < len(self.to):
            raise ArgumentError("--to names a file twice", code="argument-invalid")
