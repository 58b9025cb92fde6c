"""Run commands inside an image in the same way as `trimaran run` starts an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimaran import process
from trimaran.engines import BuiltImage, Setting
from trimaran.engines.apptainer import Apptainer
from trimaran.launch.specification import Mount

# A waiting rank yields its core to other ranks and to tests that run in parallel.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
          "-n", "2", "python"]
TORCHRUN = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "--disable-cache", "-np", "2",
              "python"]
"""Commands that start two ranks of a Python module."""


def run_inside(built: BuiltImage, out: Path, arguments: Sequence[str], *mounts: Mount) -> str:
    """Run `arguments` in the image, one thread per rank, with the folder `out` as /out.

    Returns:
        The standard output of the command.
    """
    argv, env = inside(built, out, arguments, *mounts)
    done = process.run(argv, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inside(
    built: BuiltImage, out: Path, arguments: Sequence[str], *mounts: Mount
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command that runs `arguments` as `run_inside` does, and its environment."""
    command = Apptainer().python(
        built, ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *arguments],
        Setting([*mounts, Mount(str(out), "/out", writable=True)], {"OMP_NUM_THREADS": "1"},
                "/out"),
    )
    return list(command.argv), command.env
