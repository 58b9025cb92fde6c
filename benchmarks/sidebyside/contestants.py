"""Define the commands that are compared: the app, stock baselines, and upper bounds (ceilings)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sidebyside.runner import UNAVAILABLE, BenchmarkError, Contestant
from sidebyside.spread import over_windows

GFLOP_PER_IMAGE = 24.6
"""GFLOP per image of a training step of ResNet-50 v1.5 at 224 x 224: 3 x 2 x 4.1.

The forward pass has 4.1 G multiply-adds (v1 has 3.8: He et al., arXiv:1512.03385, table 1) with two
operations each, and the backward pass has twice as many. PyTorch's FlopCounterMode counts 24.3,
because the first layer needs no gradient of its input.
"""

APP = "resnet_imagenet"
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
"""Arguments of Python that start two ranks on this machine with torchrun, on a free port."""
MPIRUN = ("mpirun", "--bind-to", "none", "--oversubscribe", "-n")


@dataclass(frozen=True)
class Steps:
    """The length of a measured training: a window to warm up, then `windows` measured windows.

    Attributes:
        batch: images per step and process.
        window: steps per window; the training reports its rate after each window.
        windows: number of measured windows.
    """

    batch: int
    window: int
    windows: int

    @property
    def all(self) -> int:
        """Return the number of steps of the training, including the warm-up."""
        return self.window * (1 + self.windows)


def app_options(environment: Mapping[str, str], app: str = APP, verb: str = "train") -> str:
    """Return the help text of the command `python -m APP VERB`.

    Raises:
        BenchmarkError: this Python cannot run the app.
    """
    done = subprocess.run(
        [sys.executable, "-m", app, verb, "--help"], env=dict(environment), check=False,
        capture_output=True, text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchmarkError(
            f"{sys.executable} cannot run the app ({last}); run the benchmark with the Python of "
            "an image or environment that has it",
            UNAVAILABLE,
        )
    return done.stdout


def imported(environment: Mapping[str, str], *packages: str) -> None:
    """Check that this Python can import all `packages` with these environment variables.

    Raises:
        BenchmarkError: a package is missing.
    """
    for package in packages:
        done = subprocess.run(
            [sys.executable, "-c", f"import {package}"], env=dict(environment), check=False,
            capture_output=True, text=True,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BenchmarkError(f"{sys.executable} cannot import {package} ({last})", UNAVAILABLE)


def ours(
    name: str,
    steps: Steps,
    environment: Mapping[str, str],
    *,
    data: Path | None = None,
    launcher: Sequence[str] = (),
    options: Sequence[str] = (),
    rate: Callable[[str], float] | None = None,
) -> Contestant:
    """Return the contestant that trains ResNet-50 with the app, on synthetic or packed data.

    Args:
        name: name in the tables.
        steps: batch size and number of steps.
        environment: environment variables of the process.
        data: a packed data set; None: synthetic data.
        launcher: words between `python` and `-m resnet_imagenet`, such as those of torchrun.
        options: further options of `train`.
        rate: function that returns the rate from the text of `metrics.jsonl`; default: the
            function `throughput`.
    """
    source = ["--synthetic"] if data is None else ["--data", str(data), "--eval-every", "0"]
    return training(name, APP, steps, environment, *source, "--model", "resnet50", *options,
                    launcher=launcher, rate=rate)


def training(
    name: str,
    app: str,
    steps: Steps,
    environment: Mapping[str, str],
    *options: str,
    launcher: Sequence[str] = (),
    rate: Callable[[str], float] | None = None,
    unit: str = "img/s",
    verb: str = "train",
    batch_option: str = "--batch-size-per-rank",
) -> Contestant:
    """Return the contestant that runs a training of an app.

    Args:
        name: name in the tables.
        app: module of the app.
        steps: batch size and number of steps.
        environment: environment variables of the process.
        options: further options of the command.
        launcher: words between `python` and `-m`, such as those of torchrun.
        rate: function that returns the rate from the text of `metrics.jsonl`; default: the
            function `throughput`.
        unit: unit of the rate.
        verb: command of the app.
        batch_option: option of the command that sets the samples of a step.
    """

    def argv(folder: Path) -> list[str]:
        return [
            sys.executable, *launcher, "-m", app, verb, batch_option,
            str(steps.batch), "--max-steps", str(steps.all), "--log-every", str(steps.window),
            "--out", str(folder / "out"), *options,
        ]

    def read(_stdout: str, folder: Path) -> float:
        return (rate or throughput)((folder / "out/metrics.jsonl").read_text(encoding="utf-8"))

    return Contestant(name, argv, environment, read, unit)


def launched(one: Contestant, ranks: int = 2) -> Contestant:
    """Return a copy of the contestant whose command Open MPI starts on several ranks."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return replace(one, argv=lambda folder: [*MPIRUN, str(ranks), *root, *one.argv(folder)])


def throughput(metrics: str) -> float:
    """Return the mean samples/s of a training from the text of its `metrics.jsonl`.

    The first report is omitted, because it belongs to the warm-up.

    Raises:
        ValueError: there are fewer than two reports.
    """
    lines = [json.loads(line) for line in metrics.splitlines()]
    return over_windows([line["value"] for line in lines if line["key"] == "throughput"][1:])


def with_all_that_stops(metrics: str) -> float:
    """Return the samples/s of a training, from the text of its `metrics.jsonl`.

    The elapsed time includes checkpoints and all other work between steps.

    The time runs from the first report, the end of the warm-up, to the last report.

    Raises:
        ValueError: there are fewer than two reports.
    """
    lines = [json.loads(line) for line in metrics.splitlines()]
    batch = next(line["value"] for line in lines if line["key"] == "global_batch_size")
    reports = [line for line in lines if line["key"] == "throughput"]
    if len(reports) < 2:
        raise ValueError(f"{len(reports)} reports: at least 2 are needed")
    first, last = reports[0], reports[-1]
    steps: int = last["metadata"]["step"] - first["metadata"]["step"]
    return steps * batch / ((last["time_ms"] - first["time_ms"]) / 1000)


def stock(
    name: str, steps: Steps, environment: Mapping[str, str], *options: str
) -> Contestant:
    """Return the contestant that runs the stock benchmark on synthetic images.

    `options` are further options of baselines/stock_resnet.py.
    """
    words = ["--batch", str(steps.batch), "--window", str(steps.window),
             "--windows", str(steps.windows), *options]
    return program(name, environment, "baselines.stock_resnet", *words)


def ceiling(
    precision: str,
    environment: Mapping[str, str],
    *options: str,
    gflop: float = GFLOP_PER_IMAGE,
    what: str = "image",
    unit: str = "img/s",
) -> Contestant:
    """Return the contestant that measures an upper bound of the rate (a ceiling).

    It measures large matrix products, and divides their rate by the GFLOP of a sample.

    Args:
        precision: precision of the products.
        environment: environment variables of the process.
        options: further options of baselines/matmul.py.
        gflop: GFLOP per sample.
        what: name of a sample in the tables.
        unit: unit of the rate.
    """
    name = f"ceiling: {precision} matmul rate / {gflop:.3g} GFLOP per {what}"
    words = ["--precision", precision, "--gflop-per-sample", str(gflop), *options]
    return program(name, environment, "baselines.matmul", *words, unit=unit)


def program(
    name: str, environment: Mapping[str, str], module: str, *words: str, unit: str = "img/s"
) -> Contestant:
    """Return the contestant that runs a module in benchmarks/, which prints `{"rate": …}`."""
    argv = [sys.executable, "-m", module, *words]
    return Contestant(name, lambda _folder: argv, environment, unit=unit)
