"""What a login node tells of its cluster, for a site file to begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trimaran import process, sites
from trimaran.cluster import slurm
from trimaran.errors import RunError, UsageError
from trimaran.files import write_atomic

FLAVOURS = ("pmix", "pmi2", "cray_shasta", "none")
"""Of `srun --mpi=`, the best for the images' Open MPI first."""


def found() -> dict[str, Any]:
    """Return the keys of a cluster, as Slurm's commands tell them.

    Raises:
        UsageError: Slurm's commands are not here.
        RunError: Slurm does not answer.
    """
    slurm.check()
    told = process.run(["sinfo", "--noheader", "--format=%P"], timeout=60, check=RunError).stdout
    partitions = told.split()
    default = next((name for name in partitions if name.endswith("*")), *partitions[:1])
    facts: dict[str, Any] = {"scheduler": "slurm", "partition": default.rstrip("*")}
    listed = process.run(["srun", "--mpi=list"], timeout=60)
    flavours = re.findall(r"[\w-]+", listed.stdout + listed.stderr)
    facts["mpi"] = next((name for name in FLAVOURS if name in flavours), "none")
    return facts


def write(path: Path, name: str, facts: Mapping[str, object]) -> None:
    """Write a site file with one cluster; one that is there stays as it is.

    Raises:
        UsageError: it is there, or a fact is none that a site file may hold.
    """
    text = yaml.safe_dump({"schema": 1, "clusters": {name: dict(facts)}}, sort_keys=False)
    if path.exists():
        raise UsageError(f"{path} is there, and is not changed",
                         hint="put these lines into it by hand:\n" + text.partition("\n")[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
    sites.load(path)
