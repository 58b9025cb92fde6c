"""Run an app in this process, in a process of its own, or in several ranks."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainkit import options
from trainkit.strategy import Strategy

LAUNCHERS: dict[str, Callable[[int], list[str]]] = {
    "ddp": lambda ranks: [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(ranks), "-m",
    ],
    "mesh": lambda ranks: LAUNCHERS["ddp"](ranks),
    "parameter-server": lambda workers: LAUNCHERS["horovod"](workers + 2),
    "mirrored": lambda replicas: [sys.executable, "-m"],
    "multiworker": lambda ranks: LAUNCHERS["horovod"](ranks),
    "horovod": lambda ranks: [
        "mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, "-m",
    ],
}
"""Strategy -> function that returns the command to start a module on a number of ranks. The
replicas of `mirrored` are devices of one process; `parameter-server` has a coordinator and a server
in addition to the workers."""

VARIABLES = {
    "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1",
    "KERAS_HOME": os.devnull, "TORCHINDUCTOR_CACHE_DIR": sys.prefix,
}
"""Environment variables as in the container images; they keep Keras and PyTorch from creating
folders in the home folder."""

LIMIT = 240.0  # maximum seconds of a training


@dataclasses.dataclass(frozen=True)
class App:
    """The properties of an app for the contract tests.

    Attributes:
        folder: folder with `app.yaml` and `options.json`.
        training: options of a training that takes a few seconds in fp32 on a CPU, with several log
            lines, checkpoints (not at the steps of log lines), and an evaluation at its end.
        steps: number of updates of this training.
        diverging: further options that make the loss infinite.
        alone: further options for a training on one process, with two micro-batches per batch, for
            a few steps without an evaluation.
        shared: further options for the same training on two ranks, with one micro-batch per rank.
        further: strategy -> further options that it needs, such as its number of replicas.
        of_each_rank: words; an array of a checkpoint may differ between ranks if its name contains
            one of them.
        files: names of the files that this app writes into the folder of a run, besides the files
            of every app.
        not_of_steps: keys of metrics in `app.yaml` that this training logs without a step number,
            or does not log because only other options measure them.
    """

    folder: Path
    training: str
    steps: int
    diverging: str
    alone: str
    shared: str
    further: Mapping[str, str] = dataclasses.field(default_factory=dict)
    of_each_rank: Sequence[str] = ()
    files: Sequence[str] = ()
    not_of_steps: Sequence[str] = ()

    @property
    def card(self) -> dict[str, Any]:
        """The content of `app.yaml`."""
        return _card(self.folder)

    @property
    def module(self) -> str:
        """The name of the app's module for `python -m`."""
        return str(self.card["module"])

    @property
    def options(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The options of each verb: verb -> option -> description in `options.json`."""
        verbs = json.loads((self.folder / "options.json").read_text())["verbs"]
        return {verb: about["options"] for verb, about in verbs.items()}

    @property
    def strategies(self) -> list[str]:
        """The strategies that connect several ranks."""
        names = self.options["train"]["strategy"]["enum"]
        return [name for name in names if name != Strategy.name]

    def main(self, *words: str | Path) -> int:
        """Run the app in this process; return its exit code."""
        program = importlib.import_module(f"{self.module}.__main__")
        code: int = program.main(list(map(str, words)))
        return code


@dataclasses.dataclass(frozen=True)
class Program:
    """The command `train` of an app.

    Attributes:
        app: the app.
        data: data set of the app, or None if the app needs no data set.
    """

    app: App
    data: Path | None

    def words(self, out: Path, *more: str | Path) -> list[str]:
        """Return the arguments of a short training in `out`; options in `more` take precedence."""
        given = [] if self.data is None else ["--data", self.data]
        own = self.app.training.split()
        return ["train", *map(str, [*given, "--out", out, *own, *more])]

    def main(self, out: Path, *more: str | Path) -> int:
        """Train in this process; return the exit code."""
        return self.app.main(*self.words(out, *more))

    def start(
        self, out: Path, *more: str | Path, launcher: Sequence[str] = (sys.executable, "-m"),
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start a training in a new process, or on several ranks, with one thread per process.

        `launcher` is the command before the name of the module; `variables` are environment
        variables.
        """
        return subprocess.Popen(
            [*launcher, self.app.module, *self.words(out, *more)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | VARIABLES | variables,
        )

    def train(self, out: Path, *more: str | Path, code: int = 0, **started: Any) -> str:
        """Train in a process of its own, assert its exit status `code`, and return its output."""
        return ended(self.start(out, *more, **started), code)


def described(folder: Path) -> str:
    """Return the options of the app in `folder`, in the format of `options.json`."""
    program = importlib.import_module(f"{_card(folder)['module']}.__main__")
    return options.described(program.COMMANDS)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end of `process`, assert its exit status `code`, and return its output."""
    try:
        said = process.communicate(timeout=LIMIT)[0]
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until `condition` returns true; fail if `process` ends first, or after `LIMIT` s."""
    limit = time.monotonic() + LIMIT
    while not condition():
        assert process.poll() is None, f"it ended too soon: {ended(process, process.returncode)}"
        assert time.monotonic() < limit
        time.sleep(0.01)


def launcher(strategy: str, ranks: int = 2) -> list[str]:
    """Return the command that starts `ranks` ranks; skip the test if a program is missing."""
    assert strategy in LAUNCHERS, f"nothing here says how ranks of '{strategy}' are started"
    if strategy == "horovod":
        pytest.importorskip("horovod", reason="Horovod is in the images: tests/integration")
    if LAUNCHERS[strategy](ranks)[0] == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    return LAUNCHERS[strategy](ranks)


def _card(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "app.yaml").read_text())
    return found
