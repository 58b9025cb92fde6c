#!/usr/bin/env python
"""Compare predictions of `trimaran plan` with measurements: two ranks of one core each.

    python benchmarks/two_ranks.py --markdown benchmarks/README.md
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sidebyside import cli, contestants, machine
from sidebyside.contestants import Steps
from sidebyside.report import Plan
from sidebyside.runner import UNAVAILABLE, BenchmarkError, Contestant
from sidebyside.spread import Spread

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "apps/shards/src")]

from trimaran.plan import pairs  # noqa: E402 - found by the line above

SIZE = 64
"""Side of the images in pixels; at this size, the exchange of gradients is not negligible."""


@dataclass(frozen=True)
class Case:
    """A network of an app.

    Attributes:
        name: app and network, as in the app's `work.json`.
        module: module of the app.
        options: options of `train`.
        horovod: package of Horovod for its framework.
        ddp: whether the app has DistributedDataParallel.
    """

    name: str
    module: str
    options: tuple[str, ...]
    horovod: str
    ddp: bool = True


def _torch(network: str) -> Case:
    options = ("--model", network, "--image-size", str(SIZE), "--precision", "fp32")
    return Case(f"resnet-imagenet/{network}", "resnet_imagenet", options, "horovod.torch")


CASES = (
    _torch("resnet18"), _torch("resnet50"),
    Case("chexnet/mobilenetv2@128", "chexnet",
         ("--model", "mobilenetv2", "--size", "128", "--inter-threads", "1", "--decoders", "1"),
         "horovod.tensorflow", ddp=False),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = cli.parser("Compare predicted and measured rates of two ranks.", rounds=3)
    top.add_argument("--batch", type=cli.positive, default=16,
                     help="images per step and rank (default: %(default)s)")
    top.add_argument("--window", type=cli.positive, default=4,
                     help="steps per window (default: %(default)s)")
    top.add_argument("--windows", type=cli.positive, default=2,
                     help="windows that count (default: %(default)s)")
    return top


def plan(options: argparse.Namespace, _folder: Path) -> Plan:
    """Return the benchmark's plan for all networks whose apps this Python can run."""
    if len(options.cores) < 2:
        raise BenchmarkError("two ranks need two cores", UNAVAILABLE)
    environment, notes = machine.our_environment({**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})
    environment = {**environment, "OMP_NUM_THREADS": "1"}
    runs, missing = [], []
    for case in CASES:
        try:
            contestants.app_options(environment, case.module)
        except BenchmarkError:
            missing.append(f"{case.name}: this Python cannot run the app")
            continue
        steps = Steps(options.batch, options.window, options.windows)
        found, reason = of_case(case, steps, environment, options.cores[:2])
        runs += found
        missing += reason
    try:
        contestants.app_options(environment, "collectives", "measure")
    except BenchmarkError as error:
        raise BenchmarkError(f"the link cannot be measured: {error}", UNAVAILABLE) from error
    runs.append(link(environment))
    notes = [*notes, f"fp32, synthetic images, {options.batch} per rank; {SIZE} pixels in PyTorch"]
    return Plan(runs, [], notes, missing, lambda rates: rows(rates, options.batch))


def of_case(
    case: Case, steps: Steps, environment: Mapping[str, str], cores: Sequence[int]
) -> tuple[list[Contestant], list[str]]:
    """Return the contestants of a network, and messages about what cannot be measured here.

    Args:
        case: the network.
        steps: batch of a rank, and number of steps.
        environment: environment variables of the processes.
        cores: numbers of two cores, one for each rank.
    """
    def training(how: str, *options: str, launcher: Sequence[str] = ()) -> Contestant:
        return contestants.training(
            f"{case.name}: {how}", case.module, steps, environment, "--synthetic", "--threads", "1",
            *case.options, *options, launcher=launcher,
        )

    one = training(pairs.ALONE)
    pinned = replace(one, argv=lambda folder: ["taskset", "-c", str(cores[0]), *one.argv(folder)])
    found, missing = [pinned, beside(one, cores)], []
    if case.ddp:
        found.append(training(f"{pairs.TOGETHER}DDP", "--strategy", "ddp",
                              launcher=contestants.TWO_RANKS))
    try:
        contestants.imported(environment, case.horovod)
        horovod = training(f"{pairs.TOGETHER}Horovod", "--strategy", "horovod")
        found.append(contestants.launched(horovod))
    except BenchmarkError:
        missing.append(f"{case.name}, Horovod: this Python has no {case.horovod}")
    return (found, missing) if len(found) > 2 else ([], missing)


def beside(one: Contestant, cores: Sequence[int]) -> Contestant:
    """Return a contestant that runs two copies of `one` at the same time, one on each core.

    Its rate is the mean of the rates of both copies, which do not communicate.
    """

    def argv(folder: Path) -> list[str]:
        words = []
        for core in cores:
            own = folder / str(core)
            own.mkdir()
            words.append(shlex.join(["taskset", "-c", str(core), *one.argv(own)]))
        return ["sh", "-c", f"{words[0]} & {words[1]} && wait $!"]

    def read(stdout: str, folder: Path) -> float:
        return sum(one.read(stdout, folder / str(core)) for core in cores) / len(cores)

    name = one.name.removesuffix(pairs.ALONE) + pairs.BESIDE
    return replace(one, name=name, argv=argv, read=read)


def link(environment: Mapping[str, str]) -> Contestant:
    """Return the contestant (measured command) that measures the bandwidth between two ranks.

    It is the bus bandwidth of an all-reduce of 32 MiB, in GB/s.
    """

    def argv(folder: Path) -> list[str]:
        return [sys.executable, *contestants.TWO_RANKS, "-m", "collectives", "measure", "--device",
                "cpu", "--operations", "all-reduce", "--min-bytes", "32MiB", "--max-bytes", "32MiB",
                "--out", str(folder / "out")]

    def read(_stdout: str, folder: Path) -> float:
        (point,) = json.loads((folder / "out/collectives.json").read_text())["points"]
        return float(point["busbw_gb_s"])

    return Contestant(pairs.LINK, argv, environment, read, "GB/s")


def rows(rates: Mapping[str, Spread], batch: int) -> list[list[str]]:
    """Return the table of predictions and measurements, header first."""
    medians = {name: spread.median for name, spread in rates.items()}
    table = [["network", "strategy", "one rank", "beside another", "two ranks", "predicted",
              "error", "from beside", "error"]]
    for one in pairs.pairs(medians, batch):
        table.append([
            one.network.partition("/")[2], one.strategy, f"{one.alone:.3g}",
            f"{one.beside:.3g}", f"{one.measured:.3g}", f"{one.predicted:.3g}", f"{one.error:+.0%}",
            f"{one.beside_predicted:.3g}", f"{one.beside_error:+.0%}",
        ])
    return table


if __name__ == "__main__":
    sys.exit(cli.run(pairs.NAME, parser(), plan))
