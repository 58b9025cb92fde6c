"""Jobs of Slurm whose containers are Enroot's, by Pyxis, or Shifter's."""

from __future__ import annotations

from trimaran.cluster.forms.common import Parts, source, text
from trimaran.cluster.script import SCHEDULERS
from trimaran.errors import UsageError
from trimaran.launch.words import plain
from trimaran.process import quoted, shell_line
from trimaran.run.launch_spec import OUT_INSIDE


def pyxis(parts: Parts) -> str:
    """Return a script for sbatch with Pyxis' options of srun."""
    host, _, path = parts.image.partition("/")
    mounts = ",".join(
        f"{source(mount, ',:', 'Pyxis')}:{mount.target}:{'rw' if mount.writable else 'ro'}"
        for mount in parts.launch.mounts
    )
    return _job(parts, "Enroot and Pyxis", [], [
        f"--container-image={host}#{path}", f"--container-mounts={mounts}",
        f"--container-workdir={OUT_INSIDE}", "--no-container-mount-home",
        "--no-container-entrypoint",
    ])


def shifter(parts: Parts) -> str:
    """Return a script for sbatch that starts Shifter in each task."""
    image = f"docker:{parts.image}"
    volumes = ";".join(
        f"{source(mount, ';:', 'Shifter')}:{mount.target}{'' if mount.writable else ':ro'}"
        for mount in parts.launch.mounts
    )
    return _job(parts, "Shifter", [f"--image={image}"], [
        "shifter", f"--image={image}", f"--volume={volumes}", f"--workdir={OUT_INSIDE}",
    ])


def _job(parts: Parts, title: str, options: list[str], container: list[str]) -> str:
    """Return a script that exports the environment and starts the ranks in a `container`."""
    if parts.cluster.scheduler != "slurm":
        raise UsageError(
            f"{title} are rendered for Slurm, and this cluster has {parts.cluster.scheduler}"
        )
    slurm, shape = SCHEDULERS["slurm"], parts.shape
    # The folder of the output is that of a run of Trimaran, whose script goes on by itself where a
    # job is queued again. Here nobody does, and the ranks themselves are told of the time limit.
    own = [one.replace("=B:", "=") for one in
           slurm.options(parts.name, shape, parts.cluster, elastic=False)
           if not one.startswith(("--output", "--requeue"))]
    starts = slurm.ranks(shape, parts.cluster, str(shape.nodes), str(shape.tasks))
    return text(parts, title, [
        *(f"#SBATCH {option}" for option in (*own, *options)),
        "set -eu",
        shell_line(["mkdir", "-p", parts.out]),
        *(f"export {name}={quoted(value)}" for name, value in parts.env.items()),
        "MASTER_ADDR=$(uname -n)",
        "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
        'export MASTER_ADDR MASTER_PORT PET_RDZV_ENDPOINT="$MASTER_ADDR:$MASTER_PORT"',
        shell_line([*map(plain, starts), *container, *parts.starter, *parts.app]),
    ])
