"""Fixtures: small data sets, and functions that run the app in this process or in a new process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed_images import pack

from resnet_imagenet.__main__ import main


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 8 training and 4 validation copies of a 160x120 JPEG.

    Its description states no image size, as for photographs of different sizes.
    """
    jpeg = (Path(__file__).parent / "data" / "gradient-160x120.jpg").read_bytes()
    splits = {"train": ([jpeg] * 8, [0, 1] * 4), "val": ([jpeg] * 4, [0, 1] * 2)}
    folder = tmp_path_factory.mktemp("data") / "photographs"
    return pack(folder, splits, classes=2, channels=3, size=None, ending="jpg")


OPTIONS = (
    "--model resnet20 --epochs 4 --batch-size-per-rank 16 --base-lr 0.1 --warmup-epochs 1 "
    "--momentum 0.9 --log-every 5 --checkpoint-every 3 --threads 1 --precision fp32"
)
SMALL_RUN = OPTIONS.split()
"""Options of a training of 28 steps, in which logging and checkpoints occur at different steps."""


@pytest.fixture(scope="session")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished training on `tiny`, which learned to separate both classes.

    All tests of a session share it; a test must not change it.
    """
    out = tmp_path_factory.mktemp("finished") / "run"
    arguments = "--model resnet20 --epochs 4 --batch-size-per-rank 16 --base-lr 0.1"
    more = ["--warmup-epochs", "1", "--momentum", "0.9"]
    assert main(["train", "--data", str(tiny), "--out", str(out), *arguments.split(), *more]) == 0
    return out


@pytest.fixture(scope="session")
def photograph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a training of one step, of a network for photographs of 224 pixels."""
    out = tmp_path_factory.mktemp("photograph") / "run"
    network = "--model resnet20 --stem imagenet --image-size 224 --batch-size-per-rank 2"
    length = "--epochs 1 --max-steps 1 --warmup-epochs 0 --eval-every 0"
    arguments = [*network.split(), *length.split()]
    assert main(["train", "--synthetic", "--out", str(out), *arguments]) == 0
    return out


@pytest.fixture(scope="session")
def imagenet() -> list[Path]:
    """Return the 20 photographs of ImageNet that foolbox ships, `imagenet_NUMBER_CLASS.jpg`."""
    found = importlib.util.find_spec("foolbox")
    if found is None or found.origin is None:
        pytest.skip("foolbox is not installed (requirements/apps-test.in)")
    return sorted((Path(found.origin).parent / "data").glob("imagenet_*.jpg"))


@pytest.fixture
def train() -> Callable[..., int]:
    """Return a function that trains in this process and returns the exit code."""

    def run(data: Path, out: Path, *more: str) -> int:
        return main(["train", "--data", str(data), "--out", str(out), *SMALL_RUN, *more])

    return run


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def start() -> Start:
    """Return a function that starts a training in a new process, with one thread.

    The returned function accepts the keyword arguments of `subprocess.Popen`.
    """

    def run(data: Path, out: Path, *more: str, **changed: Any) -> subprocess.Popen[str]:
        arguments = ["train", "--data", str(data), "--out", str(out), *SMALL_RUN, *more]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            [sys.executable, "-m", "resnet_imagenet", *arguments],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, **(piped | changed),
        )

    return run
