"""The options of the toy."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_float, positive_int
from trainkit.tensorflow import STRATEGIES


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    out: Path | None = option(None, "folder of the run", Path, metavar="DIR")
    resume: str = option("never", "never, auto, or a checkpoint file", metavar="WHICH")
    seed: int = option(17, "of the first weights and of the points", non_negative_int)
    steps: int = option(200, "updates", positive_int)
    batch_size_per_rank: int = option(32, "points per update and rank", positive_int)
    accumulation: int = option(1, "parts that a rank's batch is taken in", positive_int)
    base_lr: float = option(0.1, "learning rate", positive_float)
    precision: str = option("fp32", "of the products", choices=("fp32", "bf16"))
    strategy: str = option("single", "how ranks are connected", choices=STRATEGIES)
    device: str = option("auto", "where to compute", choices=("auto", "cpu", "gpu"))
    checkpoint_every: int = option(50, "updates between checkpoints", positive_int)
    log_every: int = option(20, "updates between lines of metrics", positive_int)

    def check(self) -> None:
        """Refuse missing options, and options that contradict each other.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        if self.out is None:
            raise ArgumentError("--out DIR is missing", code="argument-missing")
        if self.batch_size_per_rank % self.accumulation:
            raise ArgumentError(
                f"--batch-size-per-rank {self.batch_size_per_rank} has no {self.accumulation} "
                "equal parts (--accumulation)",
                code="arguments-conflict",
            )
