"""The options of the command `benchmark`."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainkit import atomic, common_options
from trainkit.common_options import PICTURES, check_picture
from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_int, up_to

NUMBERS = ".json"
LARGEST = 4096
"""Largest allowed side of the images, in pixels."""


def models(default: Sequence[str], text: str, choices: Sequence[str] | None = None) -> Any:
    """Return the option --models; without it, the networks `default` are measured."""
    return option(
        None, f"{text} (default: {' '.join(default)})", metavar="NAME", nargs="+", choices=choices
    )


@dataclass(frozen=True)
class BenchmarkSettings:
    """Options of `benchmark`; an app overrides `models` and `precision` with its own values.

    Attributes:
        LEAST_SIZE: smallest allowed side of the images, in pixels; an app sets its own value.
    """

    LEAST_SIZE: ClassVar[int] = 1

    models: list[str] | None = models((), "networks")
    batch_size: int = option(16, "images per step", up_to(1 << 20))
    size: int | None = option(
        None, "side of the images in pixels (default: that of each network, such as 224)",
        up_to(LARGEST),
    )
    steps: int = option(10, "measured steps of each network, forward and training", positive_int)
    warmup: int = option(2, "steps before them that are not measured", non_negative_int)
    precision: str = option("", "precision of the products", choices=())
    threads: int = option(
        common_options.USABLE_CORES, "threads of the CPU", up_to(1024), shown="the usable cores"
    )
    device: str = common_options.device()
    to: list[Path] | None = option(
        None, "files to write: .json for the numbers; .svg, .png or .pdf for a picture", Path,
        metavar="FILE", nargs="+",
    )
    json: bool = common_options.json()

    def check(self) -> None:
        """Raise ArgumentError for wrong options, before anything is measured.

        Raises:
            ArgumentError: the images are too small, a file already exists, its folder is missing,
                or its ending is not allowed.
        """
        if self.size is not None and self.size < self.LEAST_SIZE:
            raise ArgumentError(
                f"--size {self.size}: choose {self.LEAST_SIZE} pixels or more",
                code="argument-invalid",
            )
        for path in self.to or []:
            if path.suffix == NUMBERS:
                atomic.check_new(path)
            elif path.suffix in PICTURES:
                check_picture(path)
            else:
                raise ArgumentError(
                    f"--to {path}: the name must end with {', '.join((NUMBERS, *PICTURES))}",
                    code="argument-invalid",
                )
