"""Bind each rank to cores of its own, so that the rank and its memory stay on one socket.

Two ranks per node with two sockets are the usual configuration for training on CPUs (Codreanu et
al., arXiv:1711.04291). If a launcher binds the ranks itself, its binding is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trainkit.ranks import Ranks

SYSTEM = Path("/sys/devices/system")
BINDING = "OMPI_MCA_hwloc_base_binding_policy"
"""Environment variable that Open MPI passes to its ranks; `--bind-to` sets its value."""


def bind(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> int | None:
    """Bind this process, and all threads that it starts later, to its share of the cores.

    The process is not bound if it is the only rank of its node, if the launcher has bound the
    ranks, or if the node has fewer cores than ranks. Call this function before OpenMP starts its
    threads.

    Args:
        ranks: the numbers of this process in the job and on its node.
        environment: environment variables, which contain the binding policy of Open MPI.

    Returns:
        The number of cores of this rank, or None if the process was not bound.
    """
    if ranks.local_size == 1 or launcher_binds(ranks, environment):
        return None
    own = share(cores(os.sched_getaffinity(0)), ranks.local_rank, ranks.local_size)
    if not own:
        return None
    os.sched_setaffinity(0, [cpu for core in own for cpu in core])
    return len(own)


def launcher_binds(ranks: Ranks, environment: Mapping[str, str]) -> bool:
    """Return whether the launcher itself binds each rank to cores."""
    if ranks.launcher in ("torchrun", "horovodrun"):
        return False
    return not (ranks.launcher == "Open MPI" and environment.get(BINDING) == "none")


def share(whole: Sequence[Sequence[int]], local_rank: int, local_size: int) -> list[list[int]]:
    """Return the cores of one rank; all ranks of a node get the same number of whole cores.

    Args:
        whole: the CPUs of each core of the node, ordered by NUMA node.
        local_rank: number of the rank on its node.
        local_size: number of ranks on the node; if the node has fewer cores, each share is empty.
    """
    count = len(whole) // local_size
    return [list(core) for core in whole[local_rank * count : (local_rank + 1) * count]]


def cores(allowed: Iterable[int], system: Path = SYSTEM) -> list[list[int]]:
    """Return the CPUs (hardware threads) of each core, ordered by NUMA node.

    Args:
        allowed: the CPUs to consider.
        system: folder in which Linux describes its devices.
    """
    nodes = {
        cpu: number
        for number, node in enumerate(sorted(system.glob("node/node[0-9]*"), key=_number))
        for cpu in numbers((node / "cpulist").read_text(encoding="ascii"))
    }
    found: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(allowed):
        siblings = system / f"cpu/cpu{cpu}/topology/thread_siblings_list"
        first = min(numbers(siblings.read_text(encoding="ascii"))) if siblings.exists() else cpu
        found.setdefault((nodes.get(cpu, 0), first), []).append(cpu)
    return [found[key] for key in sorted(found)]


def numbers(text: str) -> list[int]:
    """Parse a list of numbers in the format of the kernel, such as `0-3,8`."""
    ends = [[int(word) for word in part.split("-")] for part in text.strip().split(",") if part]
    return [number for pair in ends for number in range(pair[0], pair[-1] + 1)]


def _number(path: Path) -> int:
    return int(path.name.removeprefix("node"))
