"""The options of `evaluate` and `predict`, documented at their fields."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit import atomic
from trainkit.commands import check_picture
from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_int, up_to
from trainkit.torch import DEVICES

ENDINGS = (".gif", ".mp4", ".png")
MOST = 1000  # frames to predict: they are all in memory


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = option(None, "folder of the packed sequences (dataset.json)", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    split: str | None = option(None, "split to evaluate on (default: val, else test)")
    long: int | None = option(
        None, "frames to predict, those beyond the trained ones from predicted frames "
        "(default: as trained)", up_to(MOST),
    )
    every: int | None = option(
        None, "take every N-th frame of a sequence only (default: as trained)", up_to(1000)
    )
    stride: int | None = option(
        None, "frames between the beginnings of two clips (default: the length of one)",
        positive_int,
    )
    batch_size: int = option(16, "clips at once", up_to(1 << 16))
    device: str = option("auto", "auto: the GPU where there is one", choices=DEVICES)
    json: bool = option(False, "print one JSON object")
    plot: Path | None = option(
        None, "picture to write of the scores over the frames, .png, .svg or .pdf", Path
    )

    def check(self) -> None:
        """Refuse missing options, and a picture that is there already."""
        if self.data is None:
            raise ArgumentError("evaluate needs --data DIR")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("evaluate needs either --out DIR or --checkpoint FILE")
        if self.plot is not None:
            check_picture(self.plot)


@dataclass(frozen=True)
class PredictSettings:
    """Options of `predict`."""

    data: Path | None = option(
        None, "a video, a folder of frames (in the order of the numbers in their names), or a "
        "folder of packed sequences (dataset.json)", Path, metavar="FILE|DIR",
    )
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    to: list[Path] | None = option(
        None, "files to write: .gif and .mp4 move, .png is a sheet with all frames", Path,
        metavar="FILE", nargs="+",
    )
    clip: list[int] | None = option(
        None, "which clips: of packed sequences their numbers, else the frames that they begin "
        "with (default: 0)", non_negative_int, metavar="NUMBER", nargs="+",
    )
    split: str | None = option(None, "of packed sequences: the split (default: val, else test)")
    long: int | None = option(
        None, "frames to predict, those beyond the trained ones from predicted frames "
        "(default: as trained)", up_to(MOST),
    )
    every: int | None = option(
        None, "take every N-th frame only (default: as trained)", up_to(1000)
    )
    fps: int = option(5, "frames per second of what moves", up_to(60))
    scale: int | None = option(
        None, "side of a pixel of a frame in the picture (default: frames of 128 pixels or more)",
        up_to(32),
    )
    device: str = option("auto", "auto: the GPU where there is one", choices=DEVICES)

    def check(self) -> None:
        """Refuse missing options, and files that are there already."""
        if self.data is None:
            raise ArgumentError("predict needs --data FILE|DIR")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("predict needs either --out DIR or --checkpoint FILE")
        if not self.to:
            raise ArgumentError("predict needs --to FILE [FILE ...]")
        for path in self.to:
            if path.suffix not in ENDINGS:
                raise ArgumentError(f"--to {path}: the name must end with {', '.join(ENDINGS)}")
            atomic.check_new(path)
        if len(set(self.to)) < len(self.to):
            raise ArgumentError("--to names a file twice")
