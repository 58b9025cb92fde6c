"""The options of the commands that look at a checkpoint."""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainkit import atomic
from trainkit.commands import check_picture
from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_int, up_to

DEVICES = ("auto", "cpu", "gpu")


@dataclass(frozen=True)
class EvaluateSettings:
    """Options of `evaluate`."""

    data: Path | None = option(None, "folder of the packed images (dataset.json)", Path)
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    split: str | None = option(None, "split to evaluate on (default: test, else val)")
    ten_crop: bool = option(False, "mean of ten parts of an image: corners, centre, mirrored")
    batch_size: int = option(32, "images at a time", positive_int)
    decoders: int = option(2, "images that are decoded at a time", up_to(1024))
    draws: int = option(1000, "of the bootstrap for the intervals; 0: none", non_negative_int)
    seed: int = option(17, "seeds these draws", non_negative_int)
    device: str = option("auto", "auto: the GPU where there is one", choices=DEVICES)
    json: bool = option(False, "print one JSON object")
    plot: Path | None = option(
        None, "picture to write, .png, .svg or .pdf: ROC curves and calibration", Path,
        metavar="FILE",
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

    data: list[Path] | None = option(
        None, "X-rays: PNG, JPEG or DICOM files", Path, metavar="FILE", nargs="+"
    )
    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    findings: list[str] | None = option(
        None, "findings to draw (default: the three likeliest of each image)", metavar="NAME",
        nargs="+",
    )
    device: str = option("auto", "auto: the GPU where there is one", choices=DEVICES)
    json: bool = option(False, "print one JSON object")
    to: Path | None = option(
        None, "picture to write, .png, .svg or .pdf: which regions speak for which finding", Path,
        metavar="FILE",
    )

    def check(self) -> None:
        """Refuse missing options, and a picture that is there already."""
        if not self.data:
            raise ArgumentError("predict needs --data FILE [FILE ...]")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("predict needs either --out DIR or --checkpoint FILE")
        if self.to is not None:
            check_picture(self.to)
            atomic.check_new(self.to)


@dataclass(frozen=True)
class ExportSettings:
    """Options of `export`."""

    out: Path | None = option(None, "folder of the run whose newest checkpoint is taken", Path)
    checkpoint: Path | None = option(None, "checkpoint file, instead of --out", Path)
    to: Path | None = option(None, "ONNX file, or folder of the SavedModel, to write", Path)
    format: str = option("onnx", "what is written", choices=("onnx", "savedmodel"))
    data: Path | None = option(
        None, "folder of packed images: compare on those too, not on random ones only", Path
    )

    def check(self) -> None:
        """Refuse missing options, and what is there already."""
        if self.to is None:
            raise ArgumentError("export needs --to PATH")
        if (self.out is None) == (self.checkpoint is None):
            raise ArgumentError("export needs either --out DIR or --checkpoint FILE")
        atomic.check_new(self.to)
