"""The options of all commands, documented at their fields.

`--help` and `options.json` are generated from these fields.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from trainkit import common_options
from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_float, up_to

LIBRARIES = ("torch", "mpi", "horovod")
BACKENDS = ("gloo", "nccl", "mpi")
DTYPES = ("float32", "float16", "bfloat16")
OPERATIONS = (
    "all-reduce", "broadcast", "reduce", "all-gather", "reduce-scatter", "all-to-all", "latency",
    "bandwidth", "bidirectional-bandwidth", "barrier",
)
"""The names in `operations.OPERATIONS`, without loading PyTorch for `--help`."""
ALL = "all"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LARGEST = 1 << 40


def size(text: str) -> int:
    """Parse a number of bytes, such as 4, 64KiB, 16MiB or 8GiB."""
    match = re.fullmatch(r"([0-9]{1,15})(B?|KiB|MiB|GiB)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"must be a number of bytes such as 4, 64KiB, 16MiB or 8GiB, got '{text[:40]}'"
        )
    found = int(match[1]) * UNITS[match[2].removesuffix("B") if match[2] == "B" else match[2]]
    if not 1 <= found <= LARGEST:
        raise argparse.ArgumentTypeError(f"must be from 1 to {LARGEST >> 30} GiB, got {text}")
    return found


def shown_size(count: int) -> str:
    """Return a number of bytes as short text, such as 64 KiB; `size` parses it without the space.

    A number that is not a multiple of a unit is written in bytes.
    """
    unit = next(
        (name for name, factor in reversed(UNITS.items()) if count and count % factor == 0), ""
    )
    return f"{count // UNITS[unit]} {unit or 'B'}"


def operations(text: str) -> tuple[str, ...]:
    """Parse names of operations, separated by commas, or the word `all`; return them in order."""
    if text == ALL:
        return OPERATIONS
    wanted = text.split(",")
    if unknown := [name for name in wanted if name not in OPERATIONS]:
        raise argparse.ArgumentTypeError(
            f"'{unknown[0][:40]}' is not an operation; use {ALL}, or some of {','.join(OPERATIONS)}"
        )
    return tuple(name for name in OPERATIONS if name in wanted)


@dataclass(frozen=True)
class MeasureSettings:
    """Options of `measure`."""

    out: Path | None = common_options.run_folder("metrics, measured points, fits, result")
    library: str = option("torch", "library that moves the data", choices=LIBRARIES)
    backend: str | None = option(
        None, "backend of --library torch (default: nccl on GPUs, else gloo)", choices=BACKENDS
    )
    operations: tuple[str, ...] | None = option(
        None, "operations, separated by commas (default: all that the library has)", operations,
        metavar="NAME,…",
    )
    min_bytes: int = option(4, "smallest size, such as 4 or 1KiB", size, metavar="SIZE")
    max_bytes: int = option(
        1 << 24, "largest size, such as 16MiB or 8GiB", size, metavar="SIZE", shown="16MiB"
    )
    factor: int = option(2, "each size divided by the one before, from 2", up_to(1 << 20))
    dtype: str = option("float32", "number format of the data", choices=DTYPES)
    iterations: int = option(1000, "most calls in a repetition", up_to(1 << 20))
    repetitions: int = option(5, "timed repetitions of each size", up_to(1000))
    warmup: int = option(20, "most calls before the first repetition", up_to(1 << 20))
    point_seconds: float = option(
        0.12, "time to spend on the repetitions of one size: larger sizes get fewer calls",
        positive_float,
    )
    fusion_tensors: int = option(
        1, "tensors into which --library horovod divides an all-reduce", up_to(1 << 16)
    )
    device: str = option(
        "auto", "auto: the GPU of this rank if there is one and the library can use it, else the "
        "CPU", choices=common_options.DEVICES,
    )
    patience: int = option(
        60, "seconds without progress after which ranks that hang are ended and named; 0: never",
        non_negative_int,
    )

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes, from the smallest to the largest."""
        found = [self.min_bytes]
        while found[-1] * self.factor <= self.max_bytes:
            found.append(found[-1] * self.factor)
        return found

    def check(self) -> None:
        """Refuse combinations that the parsers of single options cannot detect.

        Raises:
            ArgumentError: an option is missing, or two options contradict each other.
        """
        if self.out is None:
            raise ArgumentError("measure needs --out DIR", code="argument-missing")
        if self.min_bytes > self.max_bytes:
            raise ArgumentError(
                f"--min-bytes {shown_size(self.min_bytes)} is above --max-bytes "
                f"{shown_size(self.max_bytes)}",
                code="arguments-conflict",
            )
        if self.factor < 2:
            raise ArgumentError(
                f"--factor {self.factor}: sizes grow only with a factor of at least 2",
                code="argument-invalid",
            )
        if self.backend is not None and self.library != "torch":
            raise ArgumentError(
                f"--backend {self.backend} belongs to --library torch", code="arguments-conflict"
            )
        if self.fusion_tensors > 1 and self.library != "horovod":
            raise ArgumentError(
                f"--fusion-tensors {self.fusion_tensors} belongs to --library horovod",
                code="arguments-conflict",
            )


@dataclass(frozen=True)
class QualifySettings:
    """Options of `qualify`."""

    out: Path | None = common_options.run_folder("metrics, qualification.json, result")
    seconds: int = option(
        60, "time to spend, from the start of the ranks to the last measurement", up_to(3600)
    )
    storage: Path | None = option(
        None, "folder for the file that each node reads (default: --out)", Path, metavar="DIR"
    )
    storage_bytes: int = option(
        1 << 28, "size of that file, such as 256MiB", size, metavar="SIZE", shown="256MiB"
    )
    device: str = option(
        "auto", "auto: the GPU of this rank if there is one, else the CPU",
        choices=common_options.DEVICES,
    )
    patience: int = option(
        30, "seconds without progress after which ranks that hang are ended and named; 0: never",
        non_negative_int,
    )

    def check(self) -> None:
        """Refuse a call without `--out`, and a folder of `--storage` that does not exist.

        Raises:
            ArgumentError: an option is missing or invalid.
        """
        if self.out is None:
            raise ArgumentError("qualify needs --out DIR", code="argument-missing")
        if self.storage is not None and not self.storage.is_dir():
            raise ArgumentError(
                f"--storage {self.storage} is not a folder", code="file-missing"
            )
