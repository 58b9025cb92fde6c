"""Start ranks with mpirun or torchrun, and return what they print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

FAULTY = str(Path(__file__).with_name("faulty_measure.py"))
LIMIT = 200.0  # seconds
IDLE = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
MPIRUN = [
    "mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe",
    "--bind-to", "none", "-n",
]
QUICK = [
    "--factor", "256", "--max-bytes", "4KiB", "--point-seconds", "0.002", "--repetitions", "2",
]
"""Options of a measurement that takes seconds: two sizes, 4 and 1024 B."""


def start(words: Sequence[str | Path], code: int = 0, **variables: str) -> str:
    """Run a command with one thread per rank, check that it exits with `code`; return its output.

    MPI gives its core to other processes while it waits, because other tests run beside it.
    """
    if words[0] == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    environment = os.environ | IDLE | variables
    ended = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=LIMIT, env=environment,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def mpi(ranks: int, out: Path, *more: str, code: int = 0) -> str:
    """Run `measure` with MPI on `ranks` ranks, and return its output."""
    words = [*MPIRUN, str(ranks), sys.executable, "-m", "collectives", "measure", "--out", out]
    return start([*words, "--library", "mpi", *QUICK, *more], code)


def torch(ranks: int, out: Path, *more: str, code: int = 0) -> str:
    """Run `measure` with torch.distributed on `ranks` ranks, and return its output."""
    words = [*TORCHRUN, str(ranks), "-m", "collectives", "measure", "--out", out]
    return start([*words, *QUICK, *more], code)


def faulty(fault: str, out: Path, *more: str, code: int) -> str:
    """Run `measure` with MPI on two ranks; return its output.

    The last rank misbehaves as `fault` describes.
    """
    words = [*MPIRUN, "2", sys.executable, FAULTY, "measure", "--out", out, "--library", "mpi"]
    return start([*words, *QUICK, *more], code, FAULT=fault)
