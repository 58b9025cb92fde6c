"""The commands that compete: the real app, the stock baselines, the ceilings."""

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
"""Of one training step of ResNet-50 v1.5 at 224 x 224, per image: 3 x 2 x 4.1.

4.1 G multiply-adds forward (v1 has 3.8: He et al., arXiv:1512.03385, table 1), two
operations each, and a backward pass of twice the forward one. PyTorch's
FlopCounterMode counts 24.3: the first layer needs no gradient of its input.
"""

APP = "resnet_imagenet"
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
"""torchrun for two ranks on this machine, on a free port."""
MPIRUN = ("mpirun", "--bind-to", "none", "--oversubscribe", "-n", "2")


@dataclass(frozen=True)
class Steps:
    """How long a training contestant runs: one window to warm up, then `windows` that count.

    Attributes:
        batch: images per step and process.
        window: steps per window.
        windows: windows that count.
    """

    batch: int
    window: int
    windows: int

    @property
    def all(self) -> int:
        """Return the steps of a run, warm-up included."""
        return self.window * (1 + self.windows)


def app_options(environment: Mapping[str, str], app: str = APP) -> str:
    """Return the help text of `train` of the app whose module is `app`.

    Raises:
        BenchmarkError: the app is not installed beside this Python.
    """
    done = subprocess.run(
        [sys.executable, "-m", app, "train", "--help"], env=dict(environment), check=False,
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
    """Return the app's own `train` of ResNet-50, with synthetic data or with `data`.

    Args:
        name: shown in the tables.
        steps: its length.
        environment: its variables.
        data: a packed data set; None for --synthetic.
        launcher: words between `python` and `-m resnet_imagenet`, such as torchrun's.
        options: more options of `train`.
        rate: of the text of `metrics.jsonl` (default: `throughput`).
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
) -> Contestant:
    """Return `python -m APP train` with `options`; as `ours`."""

    def argv(folder: Path) -> list[str]:
        return [
            sys.executable, *launcher, "-m", app, verb, "--batch-size-per-rank",
            str(steps.batch), "--max-steps", str(steps.all), "--log-every", str(steps.window),
            "--out", str(folder / "out"), *options,
        ]

    def read(_stdout: str, folder: Path) -> float:
        return (rate or throughput)((folder / "out/metrics.jsonl").read_text(encoding="utf-8"))

    return Contestant(name, argv, environment, read, unit)


def launched(one: Contestant) -> Contestant:
    """Return a contestant whose command two ranks run, started by Open MPI."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return replace(one, argv=lambda folder: [*MPIRUN, *root, *one.argv(folder)])


def throughput(metrics: str) -> float:
    """Return the img/s of a run's `metrics.jsonl` without its first report, the warm-up.

    Raises:
        ValueError: it has no further report.
    """
    lines = [json.loads(line) for line in metrics.splitlines()]
    return over_windows([line["value"] for line in lines if line["key"] == "throughput"][1:])


def with_all_that_stops(metrics: str) -> float:
    """Return the img/s of a run by the clock: what happens between two steps counts, too.

    From the first report, the end of the warm-up, to the last.

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
    """Return the stock synthetic benchmark (see baselines/stock_resnet.py for `options`)."""
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
    """Return the rate of a training that is one large matmul: `gflop` for each of `what`."""
    name = f"ceiling: {precision} matmul rate / {gflop:.3g} GFLOP per {what}"
    words = ["--precision", precision, "--gflop-per-sample", str(gflop), *options]
    return program(name, environment, "baselines.matmul", *words, unit=unit)


def program(
    name: str, environment: Mapping[str, str], module: str, *words: str, unit: str = "img/s"
) -> Contestant:
    """Return one of the small programs in benchmarks/, which print `{"rate": …}`."""
    argv = [sys.executable, "-m", module, *words]
    return Contestant(name, lambda _folder: argv, environment, unit=unit)
