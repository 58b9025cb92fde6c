"""The options of all commands, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit import common_options
from trainkit.common_options import check_checkpoint, check_training
from trainkit.exits import ArgumentError
from trainkit.options import fraction, option, positive_float, positive_int, up_to
from trainkit.zoo import options as zoo

STRATEGIES = ("single", "mirrored", "multiworker", "parameter-server", "horovod")
PRECISIONS = ("fp32", "bf16")
ZOO = (
    "ResNet50", "ResNet101", "ResNet152", "ResNet50V2", "VGG16", "VGG19", "InceptionV3",
    "InceptionResNetV2", "DenseNet121", "Xception", "NASNetMobile", "MobileNetV2",
)
"""The networks that `benchmark` measures by default."""
SMALLEST = 32
"""Smallest side of images, in pixels: the smallest that the ResNets of Keras accept."""


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`, the same for each strategy.

    The defaults are those of the lesson (a course exercise) whose results the README reproduces.
    """

    data: Path | None = common_options.data("images")
    out: Path | None = common_options.run_folder()
    # The network and its images.
    model: str = option(
        "ResNet50V2", "network: its name in keras.applications, such as ResNet152V2, or Small",
        metavar="NAME",
    )
    size: int = option(128, "side to which images are enlarged or reduced, in pixels", up_to(1024))
    flip: bool = option(False, "mirror half of the training images")
    # The length of the training, and the batch.
    epochs: int = option(5, "passes over the training images", positive_int)
    max_steps: int | None = common_options.max_steps()
    batch_size: int = option(256, "images per step, on all replicas together", positive_int)
    accumulation: int = option(
        1, "micro-batches per step and replica; each has batch statistics of its own", positive_int
    )
    learning_rate: float = option(0.01, "learning rate of SGD", positive_float)
    momentum: float = option(0.0, "momentum of SGD, at least 0 and below 1", fraction)
    # The replicas.
    strategy: str = option(
        "single", "how the replicas are connected; single: one replica", choices=STRATEGIES
    )
    replicas: int | None = option(
        None, "devices of --strategy mirrored (default: all GPUs, or one replica on the CPU)",
        up_to(1024),
    )
    servers: int | None = option(
        None, "ranks of --strategy parameter-server that keep the weights (default: 1)", up_to(1024)
    )
    synchronous: bool = option(
        False, "with --strategy parameter-server: wait for all workers in each step"
    )
    watchdog: int = common_options.watchdog()
    device: str = common_options.rank_device()
    # Precision and speed.
    precision: str = option("fp32", "bf16: weights and loss stay fp32", choices=PRECISIONS)
    threads: int = option(
        common_options.USABLE_CORES, "threads of one operation (intra-op)", up_to(1024),
        shown="the usable cores",
    )
    inter_threads: int = common_options.count(1, "operations in parallel (inter-op)")
    decoders: int = common_options.count(2, "images that are decoded in parallel")
    seed: int = common_options.seed("seed of weights, order and mirroring")
    # Checkpoints and reports.
    resume: str = common_options.resume()
    checkpoint_every: int | None = common_options.checkpoint_every()
    keep: int = common_options.keep()
    eval_every: int = common_options.eval_every()
    log_every: int = common_options.log_every(20)
    synthetic: bool = common_options.synthetic("random images")

    @property
    def asynchronous(self) -> bool:
        """Whether each worker changes the weights without waiting for the other workers."""
        return self.strategy == "parameter-server" and not self.synchronous

    def check(self) -> None:
        """Raise an error for combinations that the parsers of single options cannot detect.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        check_training(self)
        if self.size < SMALLEST:
            raise ArgumentError(
                f"--size {self.size}: choose {SMALLEST} pixels or more",
                code="argument-invalid",
            )
        servers = self.servers is not None or self.synchronous
        if servers and self.strategy != "parameter-server":
            raise ArgumentError(
                "--servers and --synchronous belong to --strategy parameter-server, not to "
                f"--strategy {self.strategy}", code="arguments-conflict",
            )
        if self.replicas is not None and self.strategy != "mirrored":
            raise ArgumentError(
                f"--replicas belongs to --strategy mirrored; with --strategy {self.strategy} the "
                "launcher determines the number of ranks",
                code="arguments-conflict",
            )

    def check_replicas(self, replicas: int, samples: int) -> None:
        """Raise an error if a step cannot be divided among the replicas.

        Args:
            replicas: number of replicas of the network.
            samples: number of training images.

        Raises:
            ArgumentError: a replica would get no image in a step, or not as many as others.
        """
        parts = replicas * self.accumulation
        if self.batch_size % parts:
            raise ArgumentError(
                f"--batch-size {self.batch_size} cannot be divided evenly among {replicas} "
                f"replicas with {self.accumulation} micro-batches each: choose a multiple of "
                f"{parts}",
                code="ranks-uneven",
            )
        last = samples % self.batch_size or self.batch_size
        if last < parts:
            raise ArgumentError(
                f"the last batch of an epoch has {last} of {samples} images, fewer than the "
                f"{parts} micro-batches of a step: use fewer replicas or another --batch-size",
                code="ranks-uneven",
            )


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = common_options.data("images")
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    batch_size: int = option(64, "images at a time", positive_int)
    decoders: int = common_options.count(2, "images that are decoded in parallel")
    device: str = common_options.device()
    json: bool = common_options.json()

    def check(self) -> None:
        """Raise ArgumentError for missing options.

        Raises:
            ArgumentError: an option is missing.
        """
        check_checkpoint(self, "evaluate", data="DIR")


@dataclass(frozen=True)
class PredictSettings:
    """Options of `predict`."""

    data: list[Path] | None = option(
        None, "images: PNG or JPEG files", Path, metavar="FILE", nargs="+"
    )
    out: Path | None = common_options.trained_run()
    checkpoint: Path | None = common_options.checkpoint()
    top: int = option(3, "number of most likely classes to print", positive_int)
    device: str = common_options.device()
    json: bool = common_options.json()

    def check(self) -> None:
        """Raise ArgumentError for missing options.

        Raises:
            ArgumentError: an option is missing.
        """
        check_checkpoint(self, "predict", data="FILE [FILE ...]")


@dataclass(frozen=True)
class BenchmarkSettings(zoo.BenchmarkSettings):
    """Options of `benchmark`; most are in `trainkit.zoo.options`."""

    LEAST_SIZE = SMALLEST
    models: list[str] | None = zoo.models(ZOO, "networks: their names in keras.applications")
    precision: str = option("fp32", "bf16: weights and loss stay fp32", choices=PRECISIONS)
