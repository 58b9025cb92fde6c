"""Run commands inside an image in the same way as `trimaran run` starts an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trimaran import process
from trimaran.engines import BuiltImage, Setting
from trimaran.engines.apptainer import Apptainer
from trimaran.launch.specification import Mount


def mpirun(ranks: int) -> list[str]:
    """Return the command that starts `ranks` ranks of a Python module.

    A waiting rank yields its core to other ranks and to tests that run in parallel.
    """
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "-n", str(ranks), "python"]


MPIRUN = mpirun(2)
TORCHRUN = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "--disable-cache", "-np", "2",
              "python"]
"""Beginning of a command that starts two ranks; a Python module follows."""
START_RANK = """
for name in SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE; do
    eval "export APPTAINERENV_$name=\\$$name"
done
exec "$@"
"""
"""Shell script that starts a rank with Slurm's variables in its container, as the jobs do."""


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
    """Return a command that runs `arguments` in the image, and the environment of the command.

    The container has the folder `out` as /out and the `mounts`, and one OpenMP thread per process.
    """
    command = Apptainer().python(
        built, ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *arguments],
        Setting([*mounts, Mount(str(out), "/out", writable=True)], {"OMP_NUM_THREADS": "1"},
                "/out"),
    )
    return list(command.argv), command.env
