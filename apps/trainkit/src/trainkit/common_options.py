"""Options that several apps share: one help text and one check for each option.

Each function returns the dataclass field of one option, so that the settings of an app list all
options of a command in one place:

    @dataclass(frozen=True)
    class TrainSettings:
        seed: int = common_options.seed("seed of weights, order and augmentation")
        resume: str = common_options.resume()
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which is allowed as a default
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit import atomic
from trainkit.exits import ArgumentError
from trainkit.options import non_negative_int, option, positive_int, up_to

PICTURES = (".png", ".svg", ".pdf")
DEVICES = ("auto", "cpu", "gpu")
USABLE_CORES = len(os.sched_getaffinity(0))


def data(content: str) -> Any:
    """Return the option --data of a command that reads packed data; `content` names the data."""
    return option(None, f"folder of the packed {content} (dataset.json)", Path)


def run_folder(content: str = "metrics, checkpoints, result") -> Any:
    """Return the option --out of a command that writes a run; `content` lists the run's files."""
    return option(None, f"folder of this run: {content}", Path)


def max_steps(remark: str = "") -> Any:
    """Return the option --max-steps; `remark` is appended to the help text."""
    return option(None, f"end after this many steps{remark}", positive_int)


def seed(text: str) -> Any:
    """Return the option --seed; `text` lists the random choices that the seed determines."""
    return option(17, text, non_negative_int)


def strategy(names: Sequence[str]) -> Any:
    """Return the option --strategy: how ranks average gradients; `names` are allowed values."""
    return option("single", "how the ranks average their gradients", choices=names)


def backend(names: Sequence[str]) -> Any:
    """Return the option --backend: the library of the strategy ddp; `names` are allowed values."""
    return option(
        None, "backend of --strategy ddp (default: nccl on GPUs, else gloo)", choices=names
    )


def compression(names: Sequence[str]) -> Any:
    """Return the option --compression of gradients between ranks; `names` are allowed values."""
    return option("none", "compression of the gradients between ranks", choices=names)


def watchdog() -> Any:
    """Return the option --watchdog: seconds without progress until hanging ranks are ended."""
    return option(
        300, "seconds without progress after which ranks that hang are ended and named; 0: never",
        non_negative_int,
    )


def rank_device() -> Any:
    """Return the option --device of a training, in which each rank has its own device."""
    return option("auto", "auto: the GPU of this rank if there is one, else the CPU",
                  choices=DEVICES)


def device() -> Any:
    """Return the option --device of a command that runs as one process."""
    return option("auto", "auto: the GPU if there is one, else the CPU", choices=DEVICES)


def resume() -> Any:
    """Return the option --resume, which selects the checkpoint to continue from."""
    return option(
        "never",
        "never; auto: continue from the newest checkpoint in --out; or a checkpoint file",
        metavar="never|auto|FILE",
    )


def checkpoint_every() -> Any:
    """Return the option --checkpoint-every, the number of steps between checkpoints."""
    return option(
        None, "steps between checkpoints (default: only at the end of each epoch)", positive_int
    )


def keep() -> Any:
    """Return the option --keep, the number of checkpoints to keep."""
    return option(2, "number of checkpoints to keep", positive_int)


def eval_every() -> Any:
    """Return the option --eval-every, the number of epochs between evaluations."""
    return option(1, "epochs between evaluations; 0: never", non_negative_int)


def log_every(steps: int) -> Any:
    """Return the option --log-every with a default of `steps` steps."""
    return option(steps, "steps between lines of progress", positive_int)


def synthetic(samples: str) -> Any:
    """Return the option --synthetic for random samples; `samples` describes the samples."""
    return option(False, f"{samples} instead of --data: measures pure compute throughput")


def profile(skipped: str) -> Any:
    """Return the option --profile: number of steps to profile after `skipped` steps.

    `skipped` is a number as a word, such as "two", for the help text.
    """
    return option(
        0, f"steps to profile after the first {skipped}, to show where the time goes; 0: none",
        non_negative_int,
    )


def trained_run() -> Any:
    """Return the option --out of a command that reads the newest checkpoint of a run."""
    return option(None, "folder of the run whose newest checkpoint is used", Path)


def checkpoint() -> Any:
    """Return the option --checkpoint of a command that reads one checkpoint."""
    return option(None, "checkpoint file to use instead of --out", Path)


def json(document: str = "one JSON object") -> Any:
    """Return the option --json; `document` describes the JSON that the command then prints."""
    return option(False, f"print {document}")


def count(default: int, text: str) -> Any:
    """Return an option for a number of threads, from 1 to 1024; `text` is its help text."""
    return option(default, text, up_to(1024))


def check_training(settings: Any, command: str = "train") -> None:
    """Raise ArgumentError if the shared options of a training contradict each other.

    Args:
        settings: options of the training; the fields `backend` and `resume` may be missing.
        command: name of the command, for the message.

    Raises:
        ArgumentError: an option is missing, or two options contradict each other.
    """
    if settings.out is None:
        raise ArgumentError(f"{command} needs --out DIR", code="argument-missing")
    if (settings.data is None) != settings.synthetic:
        raise ArgumentError(
            f"{command} needs either --data DIR or --synthetic", code="argument-missing"
        )
    backend_name, resume_from = (getattr(settings, name, None) for name in ("backend", "resume"))
    if backend_name is not None and settings.strategy != "ddp":
        raise ArgumentError(
            f"--backend {backend_name} belongs to --strategy ddp", code="arguments-conflict"
        )
    if resume_from not in (None, "never", "auto") and not Path(resume_from).is_file():
        raise ArgumentError(
            f"--resume {resume_from}: no such file (use auto, never or a file)",
            code="checkpoint-missing",
        )


def check_checkpoint(settings: Any, command: str, *, data: str | None = None) -> None:
    """Raise ArgumentError if an option that selects a checkpoint, or the data, is missing.

    Args:
        settings: options of the command.
        command: name of the command, for the message.
        data: what `--data` takes, for the message; None if the command does not need this option.

    Raises:
        ArgumentError: `--data` is missing, or not exactly one of `--out` and `--checkpoint` is
            given.
    """
    if data is not None and not settings.data:
        raise ArgumentError(f"{command} needs --data {data}", code="argument-missing")
    if (settings.out is None) == (settings.checkpoint is None):
        raise ArgumentError(
            f"{command} needs either --out DIR or --checkpoint FILE", code="argument-missing"
        )


def check_picture(path: Path) -> None:
    """Raise ArgumentError if a picture has an unknown file name extension, or already exists.

    Raises:
        ArgumentError: the picture cannot be written.
    """
    if path.suffix not in PICTURES:
        raise ArgumentError(
            f"{path}: the name of a picture must end with {', '.join(PICTURES)}",
            code="argument-invalid",
        )
    atomic.check_new(path)


@dataclass(frozen=True)
class PlotSettings:
    """Options of the command `plot`, which the module `trainkit.plots` implements."""

    out: list[Path] | None = option(
        None, "folders of one or several runs, finished or not", Path, metavar="RUN", nargs="+"
    )
    to: Path | None = option(
        None, "picture to write, .png, .svg or .pdf (default for one run: its plot.png)", Path
    )

    def check(self) -> None:
        """Raise ArgumentError if an option is missing, or the picture `to` cannot be written.

        Raises:
            ArgumentError: `out` is missing, or `to` is missing for several runs, or the file `to`
                already exists, cannot be created, or has an unknown file name extension.
        """
        if not self.out:
            raise ArgumentError("plot needs --out RUN [RUN ...]", code="argument-missing")
        if self.to is None:
            if len(self.out) > 1:
                raise ArgumentError("plot of several runs needs --to FILE", code="argument-missing")
            return
        check_picture(self.to)
