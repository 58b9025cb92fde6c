"""Rank and world size of this process, from the environment variables of the launcher."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainkit.exits import ArgumentError

LAUNCHERS: dict[str, tuple[str, str, str, str]] = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Cray MPICH": ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    "jsrun": (
        "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
        "JSM_NAMESPACE_LOCAL_SIZE",
    ),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}
"""Launcher -> environment variables of rank, world size, local rank and local size. The innermost
launcher comes first: inside a Slurm job, mpirun and torchrun start the ranks, and Slurm's variables
describe the whole job."""

WAYS_OUT = {
    "torchrun": "torchrun serves torch.distributed only: use --strategy ddp, or start the ranks "
    "with the mpirun of an Open MPI, or with horovodrun",
    "horovodrun": "they did not find each other: try horovodrun --gloo, the mpirun of an Open MPI, "
    "or --strategy ddp",
    "Open MPI": "its version differs from the one in the container (the images have 4.1): use "
    "--strategy ddp, an mpirun of that version, or the mpirun inside the container",
    "MPICH": "it cannot start the Open MPI of the images: use --strategy ddp, the mpirun of an "
    "Open MPI on the host, or srun --mpi=pmix",
    "Cray MPICH": "it cannot start the Open MPI of the images: use --strategy ddp, "
    "srun --mpi=pmix, or the mpirun of an Open MPI on the host",
    "jsrun": "it describes the ranks to IBM's MPI only: use --strategy ddp",
    "Slurm": "it did not describe them to MPI: use srun --mpi=pmix, --strategy ddp, or the mpirun "
    "of an Open MPI inside the job",
}
"""Launcher -> remedy if the ranks that it started do not find each other."""

_NUMBER = re.compile(r"([0-9]{1,9})(?:\(x[0-9]+\))?(?:,.*)?")
"""Pattern of a number from a launcher; Slurm writes "2(x3)" for three nodes with two tasks each,
and "2,1" for nodes with different numbers of tasks."""

_ADDRESS = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
"""Pattern of a host name or an IP address (version 4 or 6), without port and scheme."""

JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PMI_KVSNAME")


@dataclass(frozen=True)
class Ranks:
    """The numbers of this process in the job and on its node.

    Attributes:
        launcher: the launcher that started this process, or None without a launcher.
        rank: number of the process, 0 to size - 1.
        size: processes in the job (world size).
        local_rank: number of the process on its node.
        local_size: processes on its node.
    """

    launcher: str | None = None
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def detect(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return the rank of this process from the variables of its launcher.

    Some launchers set no local rank: for example, `srun --mpi=pmi2` sets MPICH's variables without
    a local rank. In this case, the variables of an outer launcher are used if they have the same
    rank and size, and a local rank.

    Raises:
        ArgumentError: the variables are not numbers, or contradict each other.
    """
    partial = None
    for launcher, names in LAUNCHERS.items():
        given = [environment.get(name) or None for name in names]  # empty counts as unset
        if given[0] is None or given[1] is None:
            continue
        found, complete = _parse(launcher, names, given), None not in given
        if partial is None and complete:
            return found
        if partial is None:
            partial = found
        elif complete and (found.rank, found.size) == (partial.rank, partial.size):
            return found
    return partial or Ranks()


def _parse(launcher: str, names: Sequence[str], given: Sequence[str | None]) -> Ranks:
    found = [_NUMBER.fullmatch(text or "0") for text in given]
    if None in found:
        raise ArgumentError(
            f"the variables of {launcher} are not numbers: "
            + ", ".join(f"{name}={text!r}" for name, text in zip(names, given, strict=True)),
            code="launcher-invalid",
        )
    rank, size, local_rank, local_size = (int(one[1]) for one in found if one)
    if rank >= size:
        raise ArgumentError(
            f"{names[0]}={rank} is not a rank of {names[1]}={size}", code="launcher-invalid"
        )
    return Ranks(launcher, rank, size, local_rank, max(1, local_size))


def share(planned: int | None, size: int) -> int:
    """Return how many planned ranks each of `size` ranks replaces.

    After the loss of a node, the remaining ranks share the global batch: each rank processes the
    samples of several planned ranks, in one micro-batch for each planned rank. Therefore global
    batch, batch statistics and losses stay the same.

    Args:
        planned: number of ranks for which the training is configured; by default `size`.
        size: actual number of ranks.

    Raises:
        ArgumentError: the work cannot be divided evenly.
    """
    if planned is None:
        return 1
    if planned % size:
        raise ArgumentError(
            f"--ranks {planned}: {size} ranks cannot share the work of {planned} evenly; start "
            f"{max(n for n in range(1, size + 1) if planned % n == 0)}",
            code="ranks-uneven",
        )
    return planned // size


def yield_when_idle() -> None:
    """Make Open MPI yield its core while it waits; call this function before Horovod starts.

    Horovod waits in a thread of its own, and Open MPI waits by polling. If every core computes, the
    polling slows down each step, unless Open MPI yields the core to other threads (`strategies` in
    benchmarks/README.md). A value that the user has set is kept.
    """
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")


def horovod_backend(hvd: Any, *, gpu: bool) -> str:
    """Return the library with which Horovod averages tensors: gloo, mpi or nccl.

    Args:
        hvd: the Horovod module of a framework, after `init`.
        gpu: whether the tensors are on a GPU, for which Horovod uses NCCL if it was built with
            NCCL.
    """
    if gpu and hvd.nccl_built():
        return "nccl"
    return "mpi" if hvd.mpi_enabled() else "gloo"


def check_size(ranks: Ranks, seen: int, framework: str) -> None:
    """Raise ArgumentError if the ranks are not connected, because each rank would train alone.

    Ranks stay unconnected, without a message, if the launcher belongs to another MPI.

    Args:
        ranks: the ranks that the launcher describes.
        seen: number of ranks that the framework reports after its start.
        framework: name of the framework.

    Raises:
        ArgumentError: the numbers differ; the message has the remedies for this launcher.
    """
    if ranks.launcher is None or seen == ranks.size:
        return
    raise ArgumentError(
        f"{ranks.launcher} started {ranks.size} ranks, {framework} sees {seen}; "
        + WAYS_OUT[ranks.launcher],
        code="ranks-unconnected",
    )


def rendezvous(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return the address and port at which the ranks of torch.distributed connect.

    MASTER_ADDR and MASTER_PORT are returned if they are set, for example by torchrun. Without
    MASTER_ADDR, the result has the address of the loopback device if all ranks are on this node.
    Without MASTER_PORT, the port is derived from the name of the job, so that two jobs on a node
    use different ports.

    Raises:
        ArgumentError: the ranks are on several nodes and MASTER_ADDR is not set, or one of the two
            variables is malformed.
    """
    address = environment.get("MASTER_ADDR")
    job = next((environment[name] for name in JOBS if name in environment), "")
    port = 20000 + zlib.crc32(os.fsencode(job)) % 10000
    if port_text := environment.get("MASTER_PORT"):
        if re.fullmatch(r"[0-9]{1,5}", port_text) is None or not 0 < int(port_text) < 1 << 16:
            raise ArgumentError(
                f"MASTER_PORT={port_text!r} is not a port: set a number from 1 to 65535",
                code="launcher-invalid",
            )
        port = int(port_text)
    if address:
        if _ADDRESS.fullmatch(address) is None or address.count(":") == 1:
            raise ArgumentError(f"MASTER_ADDR={address!r} is not a host: set a name or an address,"
                                " without a scheme, and the port in MASTER_PORT",
                                code="launcher-invalid")
        return address, port
    if ranks.local_size < ranks.size:
        raise ArgumentError(
            f"{ranks.size} ranks on several nodes: set MASTER_ADDR to the node of rank 0 "
            "(and MASTER_PORT), the same for all ranks",
            code="launcher-invalid",
        )
    return "127.0.0.1", port
