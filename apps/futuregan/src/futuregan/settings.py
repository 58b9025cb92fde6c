"""The options of `train`, documented at their fields; `--help` is made from them."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from futuregan.growth import BatchSizes, batch_sizes
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
from trainkit.torch import AUTO, BACKENDS, COMPRESSIONS, DEVICES, STRATEGIES

LOSSES = ("wgan-gp", "lsgan", "gan")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SIZES = ("4", "8", "16", "32", "64", "128", "256", "512")
THREADS = min(4, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`.

    The defaults are those of arXiv:1810.01325. What it leaves open is as in arXiv:1710.10196, whose
    networks it grows: the decay of the moving average is of its appendix A.1, the groups of four of
    its program; --precision auto is faster where it is not fp32.
    """

    data: Path | None = option(None, "folder of the packed sequences (dataset.json)", Path)
    out: Path | None = option(None, "folder of this run: metrics, checkpoints, result", Path)
    # What is predicted.
    past: int = option(6, "frames that are given", up_to(64))
    future: int = option(6, "frames to predict", up_to(64))
    every: int = option(1, "take every N-th frame of a sequence only", up_to(1000))
    stride: int | None = option(
        None, "frames between the beginnings of two clips (default: the length of one)",
        positive_int,
    )
    size: str = option("128", "side of the frames at the end, in pixels", choices=SIZES)
    first_size: str = option("4", "side of the frames that are trained first", choices=SIZES)
    # The networks.
    width: int = option(
        512, "features up to 32 pixels; half as many for each doubling from there", up_to(4096)
    )
    base_size: str = option(
        "4", "side of what both networks make of a frame in their middle", choices=SIZES
    )
    residual: bool = option(
        False, "the generator makes what changes against the last frame, not the frame"
    )
    skip: int = option(
        0, "features in which the generator's decoder gets what its encoder had at each size, past "
        "the middle; 0: it does not", non_negative_int,
    )
    stddev_group: int = option(
        4, "clips whose deviation the discriminator sees; with fewer on a rank, those of all ranks",
        up_to(4096),
    )
    ema_decay: float = option(
        0.999, "decay of the moving average of the generator, which is evaluated; 0: none", fraction
    )
    # How long, and how many clips at once.
    transition_epochs: int = option(10, "epochs in which a new resolution is faded in",
                                    non_negative_int)
    stabilization_epochs: int = option(10, "epochs of each resolution that follow", positive_int)
    epochs: int | None = option(
        None, "passes over the clips in all: the last resolution has those that are left "
        "(default: as the two options above say)", positive_int,
    )
    max_steps: int | None = option(None, "end after this many steps", positive_int)
    batch_size_per_rank: BatchSizes = option(
        BatchSizes(((4, 8),)), "clips per step and process, or by the side of the frames, as in "
        "4:32,16:16,64:4", batch_sizes, metavar="COUNT|SIZE:COUNT,…",
    )
    micro_batch: int | None = option(
        None, "clips of a process at once: the batch is taken in parts of at most so many, whole "
        "groups of --stddev-group, which changes memory, not the losses (default: all)",
        positive_int,
    )
    # The losses.
    loss: str = option("wgan-gp", "adversarial loss", choices=LOSSES)
    penalty: float = option(10.0, "weight of the gradient penalty (wgan-gp)", non_negative_float)
    drift: float = option(0.001, "weight of the squared scores (wgan-gp)", non_negative_float)
    reconstruction: float = option(
        0.0, "weight of the mean squared error in the generator's loss", non_negative_float
    )
    pretraining_epochs: int = option(
        0, "epochs at first in which the generator learns from that error alone, without a "
        "discriminator, which takes most of a step's time", non_negative_int,
    )
    # The optimizers.
    base_lr: float = option(0.001, "learning rate of both networks at first", positive_float)
    lr_decay: float = option(0.87, "factor of the rate at each growth", positive_float)
    # Precision and speed.
    precision: str = option(
        AUTO, "bf16 and fp16 are autocast, weights and gradient penalty stay fp32; tf32: GPUs; "
        "auto: bf16 where all devices have instructions for it, else fp32",
        choices=(AUTO, *PRECISIONS),
    )
    threads: int = option(
        THREADS, "threads that decode", up_to(1024), shown="one for each usable core, at most 4"
    )
    frame_cache: int = option(2048, "MB of decoded frames to keep in memory", positive_int)
    seed: int = option(17, "seeds weights, order and what the penalty looks at", non_negative_int)
    # The ranks.
    strategy: str = option("single", "how ranks work together", choices=STRATEGIES)
    backend: str | None = option(
        None, "of --strategy ddp (default: nccl on GPUs, else gloo)", choices=BACKENDS
    )
    compression: str = option("none", "of gradients between ranks", choices=COMPRESSIONS)
    watchdog: int = option(
        300,
        "seconds without progress after which ranks that hang are ended, and named; 0: never",
        non_negative_int,
    )
    device: str = option("auto", "auto: the GPU of this rank where there is one", choices=DEVICES)
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
    log_every: int = option(50, "steps between lines of progress", positive_int)
    synthetic: bool = option(False, "random clips instead of --data: pure compute throughput")
    profile: int = option(
        0, "steps to profile after the first ten: where the time goes; 0: none", non_negative_int
    )

    @property
    def at_once(self) -> BatchSizes:
        """Clips of a process at once, by the side of the frames."""
        return self.batch_size_per_rank.at_most(self.micro_batch)

    def check(self) -> None:
        """Refuse what the single options cannot see.

        Raises:
            ArgumentError: options that are missing or contradict each other.
        """
        if self.out is None:
            raise ArgumentError("train needs --out DIR")
        if (self.data is None) != self.synthetic:
            raise ArgumentError("train needs either --data DIR or --synthetic")
        if not int(self.base_size) <= int(self.first_size) <= int(self.size):
            raise ArgumentError(
                f"--base-size {self.base_size}, --first-size {self.first_size} and --size "
                f"{self.size} must not fall"
            )
        if self.pretraining_epochs and not self.reconstruction:
            raise ArgumentError(
                f"--pretraining-epochs {self.pretraining_epochs} needs a --reconstruction: without "
                "a discriminator there is nothing else to learn from"
            )
        if self.backend is not None and self.strategy != "ddp":
            raise ArgumentError(f"--backend {self.backend} belongs to --strategy ddp")
        if self.resume not in ("never", "auto") and not Path(self.resume).is_file():
            raise ArgumentError(f"--resume {self.resume}: no such file (or say auto, or never)")
