"""The options of the toy."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit.exits import ArgumentError
from trainkit.options import (
    non_negative_float,
    non_negative_int,
    option,
    positive_float,
    positive_int,
)
from trainkit.torch import COMPRESSIONS, STRATEGIES


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    out: Path | None = option(None, "folder of the run", Path, metavar="DIR")
    resume: str = option("never", "never, auto, or a checkpoint file", metavar="WHICH")
    seed: int = option(17, "of the first weights and of the points", non_negative_int)
    steps: int = option(1000, "updates of both networks", positive_int)
    grow_at: int = option(500, "step before which the generator grows", positive_int)
    batch_size_per_rank: int = option(128, "points per update and rank", positive_int)
    base_lr: float = option(0.005, "learning rate of both networks", positive_float)
    penalty: float = option(3.0, "weight of the penalty on gradients", non_negative_float)
    strategy: str = option("single", "how ranks are connected", choices=STRATEGIES)
    compression: str = option("none", "of gradients on the network", choices=COMPRESSIONS)
    device: str = option("auto", "where to compute", choices=("auto", "cpu", "gpu"))
    checkpoint_every: int = option(50, "updates between checkpoints", positive_int)
    log_every: int = option(20, "updates between lines of metrics", positive_int)

    def check(self) -> None:
        """Refuse missing options.

        Raises:
            ArgumentError: an option is missing.
        """
        if self.out is None:
            raise ArgumentError("--out DIR is missing", code="argument-missing")
