"""The options of the app; each field defines an option with its help text and its check."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_float, positive_int
from trainkit.torch import STRATEGIES


@dataclass(frozen=True)
class TrainSettings:
    """Options of `train`."""

    out: Path | None = option(None, "folder of the run", Path, metavar="DIR")
    resume: str = option("never", "never, auto, or a checkpoint file", metavar="WHICH")
    seed: int = option(17, "of the first line and of the points", non_negative_int)
    steps: int = option(400, "updates of the line", positive_int)
    batch_size_per_rank: int = option(32, "points per update and rank", positive_int)
    base_lr: float = option(0.05, "learning rate", positive_float)
    strategy: str = option("single", "how ranks are connected", choices=STRATEGIES)
    device: str = option("auto", "where to compute", choices=("auto", "cpu", "gpu"))
    checkpoint_every: int = option(100, "updates between checkpoints", positive_int)
    log_every: int = option(50, "updates between lines of metrics", positive_int)

    def check(self) -> None:
        """Raise an error for a missing option.

        Raises:
            ArgumentError: --out is missing.
        """
        if self.out is None:
            raise ArgumentError("--out DIR is missing", code="argument-missing")
