"""Compare the limits of a node with the needs of a recipe.

The limits are CPUs, memory, shared memory, locked memory, open files, processes and threads.
"""

from __future__ import annotations

import re

from trimaran.doctor import processors
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.situation import Situation
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Resources

GIB = 2**30
MIB = 2**20

IMPORT_BYTES = 230_032 * 1024
"""Resident memory in bytes of a process that has only imported PyTorch.

On 2026-11-27, `/usr/bin/time -v python -c "import torch"` printed 230,032 KiB, with PyTorch 2.13.0
on Debian 12.
"""

MPI_SEGMENT_BYTES = 4_194_312
"""Size in bytes of the file that each rank of Open MPI creates in /dev/shm.

Sources (Open MPI 4.1.4, 2026-11-27): `ompi_info --param btl vader --level 9`, and the message of a
run with a /dev/shm of 1 MiB. This run was correct, but its ranks did not use shared memory.
"""

NCCL_SHM_BYTES = GIB
"""Bytes of /dev/shm that NVIDIA recommends for containers (NCCL user guide, troubleshooting)."""

PINNED_BYTES = 16 * MIB
"""Smallest limit of locked memory in bytes with which RDMA can work.

It is enough for the send and receive buffers of two NCCL channels. A buffer has 4 MiB (NCCL user
guide, NCCL_BUFFSIZE).
"""

PEAK_MEMORY = "peak_memory_bytes"
"""Key in `metrics.jsonl` for the largest peak memory of all ranks (see the app contract)."""

CAP_IPC_LOCK = 14
"""Number of the Linux capability (CAP_IPC_LOCK) that lifts the limit of locked memory."""

THREADS_PER_CPU = 4
"""Assumed number of threads of a run for each CPU: OpenMP, autograd, decoding, MPI or NCCL."""

SPARE_THREADS = 256
"""Assumed number of threads that the user's other programs have on a node."""

FINDINGS: dict[str, Explained] = {
    **processors.FINDINGS,
    "memory-limit": Explained(
        "limits", "fail",
        "The memory of the node, or the smallest limit of the cgroups, is below the target's"
        " memory: the kernel kills the run, or the verdict is NO REFERENCE. It is a FAIL if the"
        " ranks cannot even import PyTorch (0.22 GiB each), or if the recipe expects more peak"
        " memory of them.",
        "request more memory (Slurm: --mem=0 takes all of a node), or reduce tasks_per_node",
        "for real: a cgroup with a limit, where root may make one; described nodes",
    ),
    "huge-pages": Explained(
        "limits", "warn",
        "Reserved huge pages take memory from the run, or transparent huge pages are off, so that"
        " large tensors need more page table entries.",
        "an administrator sets vm.nr_hugepages to 0 and transparent_hugepage/enabled to madvise",
        "described node",
    ),
    "shm": Explained(
        "limits", "warn",
        "The ranks of a node share data in /dev/shm: each rank of Open MPI needs 4 MiB and falls"
        " back to slower ways, NCCL needs 1 GiB and fails if it is full.",
        "enlarge it (mount -o remount,size=8g /dev/shm; Docker: --shm-size=8g), or delete files",
        "for real: a tmpfs of 1 MiB at /dev/shm in a mount namespace",
    ),
    "memlock": Explained(
        "limits", "fail",
        "InfiniBand, RoCE, EFA and Omni-Path need locked memory. It is a FAIL below 16 MiB if the"
        " recipe uses several nodes with InfiniBand, and a WARN if it is not unlimited.",
        "an administrator sets memlock to unlimited in /etc/security/limits.d, and for the batch"
        " system (slurmd.service: LimitMEMLOCK=infinity)",
        "for real: ulimit -l, with a described InfiniBand device",
    ),
    "open-files": Explained(
        "limits", "warn",
        "Each rank keeps connections to other ranks and open shards; a run may end with `Too many"
        " open files`.",
        "raise the soft limit, for example with `ulimit -n 65536`; Slurm takes over the limits of"
        " the shell that submits",
        "for real: ulimit -n",
    ),
    "processes": Explained(
        "limits", "fail",
        "The limit of the user's processes, or of a cgroup's, includes threads. It is a FAIL if"
        " OpenMP cannot start one thread per CPU.",
        "raise the limit: `ulimit -u`, limits.d (nproc), or pids.max of the cgroup",
        "for real: ulimit -u of an ordinary user",
    ),
}
"""Documentation of the findings in the group `limits`, by ID."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the limits of a node.

    The list is empty on the login node of a cluster, because it has other limits than the compute
    nodes.
    """
    if situation.before_job:
        return []
    subjects = (_memory, _huge_pages, _shm, _memlock, _open_files, _processes)
    own = [finding for subject in subjects if (finding := subject(situation)) is not None]
    return [*processors.check(situation), *own]


def _resources(situation: Situation) -> Resources | None:
    return situation.recipe.recipe.resources if situation.recipe is not None else None


def _meminfo(facts: NodeFacts, name: str) -> int | None:
    """Return the value of the row `name` of /proc/meminfo: bytes, or a number if it has no unit."""
    match = re.search(rf"^{name}:\s+(\d+)( kB)?$", facts.text("meminfo") or "", re.MULTILINE)
    return int(match[1]) * (1024 if match[2] else 1) if match else None


def _counts(facts: NodeFacts, key: str) -> list[int]:
    """Return the limits in the lines of the fact `key`.

    Lines with `max`, which stands for no limit, are left out.
    """
    return [int(line) for line in (facts.text(key) or "").split() if line.isdecimal()]


def soft_limit(facts: NodeFacts, name: str) -> float | None:
    """Return a soft limit of /proc/self/limits, or None if it is unknown.

    The limit `unlimited` is returned as infinity.
    """
    match = re.search(rf"^{name} +(unlimited|\d+)", facts.text("self-limits") or "", re.MULTILINE)
    if match is None:
        return None
    return float("inf") if match[1] == "unlimited" else float(match[1])


def memory(facts: NodeFacts) -> int | None:
    """Return the memory in bytes that a run may use on a node, or None if it is unknown.

    This is the memory of the node, or the limit of a cgroup if the limit is smaller.
    """
    total = _meminfo(facts, "MemTotal")
    return None if total is None else min([total, *_counts(facts, "cgroup-memory")])


def need_of_rank(file: RecipeFile | None) -> float | None:
    """Return the peak memory in bytes of a rank that the recipe states among its expected metrics.

    Return None if the recipe states none. On GPUs, the peak memory includes only tensors, so a rank
    needs more than this.
    """
    if file is None:
        return None
    metrics = file.card.card.metrics
    needs = [
        one.value / metrics[one.metric].factor for one in file.recipe.expected
        if one.metric in metrics and metrics[one.metric].key == PEAK_MEMORY
    ]
    return max(needs, default=None)


def _memory(situation: Situation) -> Finding | None:
    given, wanted = memory(situation.facts), _resources(situation)
    if given is None:
        return None
    total = _meminfo(situation.facts, "MemTotal") or given
    cause = f"{total / GIB:.1f} GiB of memory"
    if given < total:
        cause += f", limited by a cgroup to {given / GIB:.2f} GiB"
    least = situation.target.node.memory_gib if situation.target is not None else None
    level: Level = "ok"
    # A node has a little less than its nominal memory. The value is rounded as in the verdict.
    if least is not None and round(given / GIB, 1) < least:
        level, cause = "warn", f"{cause}, the target has {least:g} GiB"
    if wanted is None:
        return found(FINDINGS, "memory-limit", level, cause)
    expected = None if wanted.gpus_per_task else need_of_rank(situation.recipe)
    need = wanted.tasks_per_node * (expected or IMPORT_BYTES)
    if given < need:
        level = "fail"
        doing = "reach the expected peak memory" if expected else "import PyTorch"
        cause += f"; {wanted.tasks_per_node} rank(s) that {doing} take {need / GIB:.2f} GiB"
    return found(FINDINGS, "memory-limit", level, cause)


def _huge_pages(situation: Situation) -> Finding | None:
    facts = situation.facts
    mode = re.search(r"\[(\w+)\]", facts.text("thp") or "")
    total, size = _meminfo(facts, "MemTotal"), _meminfo(facts, "Hugepagesize") or 0
    if mode is None or not total:
        return None
    reserved = (_meminfo(facts, "HugePages_Total") or 0) * size
    cause = f"transparent huge pages: {mode[1]}; {reserved / GIB:.1f} GiB reserved"
    good = mode[1] != "never" and reserved <= total / 10
    return found(FINDINGS, "huge-pages", "ok" if good else "warn", cause)


def shm_need(resources: Resources | None) -> int:
    """Return the number of bytes in /dev/shm that the ranks of a node need; 0 for a single rank."""
    if resources is None or resources.tasks_per_node == 1:
        return 0
    if resources.gpus_per_task:
        return NCCL_SHM_BYTES
    return resources.tasks_per_node * MPI_SEGMENT_BYTES


def _shm(situation: Situation) -> Finding | None:
    rows = re.findall(r"^\s*(\d+)\s+(\d+)\s*$", situation.facts.text("shm") or "", re.MULTILINE)
    if not rows:
        return None
    free, need = int(rows[-1][1]) * 1024, shm_need(_resources(situation))
    cause = f"{free / MIB:.0f} MiB of {int(rows[-1][0]) / 1024:.0f} MiB free in /dev/shm"
    if need:
        cause += f", {need / MIB:.0f} MiB needed by the ranks of a node"
    if situation.facts.text("shm-writable") == "no":
        return found(FINDINGS, "shm", "warn", "the folder /dev/shm is not writable",
                     "an administrator must run: chmod 1777 /dev/shm")
    return found(FINDINGS, "shm", "ok" if free >= need else "warn", cause)


def _memlock(situation: Situation) -> Finding | None:
    limit, wanted = soft_limit(situation.facts, "Max locked memory"), _resources(situation)
    if limit is None or not situation.facts.under("port"):
        return None
    capabilities = processors.status_field(situation.facts, "CapEff") or ""
    known = re.fullmatch(r"[0-9a-f]{1,16}", capabilities)
    free = known is not None and bool(int(known[0], 16) >> CAP_IPC_LOCK & 1)
    if limit == float("inf") or free:
        return found(FINDINGS, "memlock", "ok", "locked memory is not limited")
    several = wanted is not None and wanted.nodes > 1
    infiniband = any("ACTIVE" in port and "layer=InfiniBand" in port
                     for port in situation.facts.under("port").values())
    hopeless = several and infiniband and limit < PINNED_BYTES
    return found(FINDINGS, "memlock", "fail" if hopeless else "warn",
                 f"{limit / MIB:.3g} MiB of locked memory allowed, devices for RDMA are present")


def files_need(resources: Resources | None) -> int:
    """Return the assumed number of files that a rank may have open at the same time.

    256 files are for shards, libraries and pipes. Four files are added for each rank, because Gloo
    and Open MPI open one connection per pair of ranks and process group.
    """
    ranks = 1 if resources is None else resources.nodes * resources.tasks_per_node
    return 256 + 4 * ranks


def _open_files(situation: Situation) -> Finding | None:
    limit, need = soft_limit(situation.facts, "Max open files"), files_need(_resources(situation))
    if limit is None:
        return None
    return found(FINDINGS, "open-files", "ok" if limit >= need else "warn",
                 f"{limit:.0f} open files allowed per process, a rank may need {need}")


def _processes(situation: Situation) -> Finding | None:
    limits = list(map(float, _counts(situation.facts, "cgroup-pids")))
    user = soft_limit(situation.facts, "Max processes")
    root = (processors.status_field(situation.facts, "Uid") or "").split()[:1] == ["0"]
    if user is not None and not root:  # the limit does not apply to root
        limits.append(user)
    need, limit = processors.wanted(situation), min(limits, default=float("inf"))
    if need is None or limit == float("inf"):
        return None
    wise = THREADS_PER_CPU * need + SPARE_THREADS
    level: Level = "fail" if limit < need else "warn" if limit < wise else "ok"
    return found(FINDINGS, "processes", level,
                 f"{limit:.0f} processes and threads allowed, a run on {need} CPUs may need {wise}")
