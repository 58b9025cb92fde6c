"""Compare the CPUs that a run may use on a node with the needs of its recipe and target."""

from __future__ import annotations

import re

from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, found
from trimaran.doctor.situation import Situation

BF16_FLAGS = {"avx512_bf16", "amx_bf16"}
"""CPU flags of processors on which PyTorch trains fast in bf16 (`trainkit.torch.precision`).

The flag `bf16` of Arm processors is not among them (guide: Arm processors).
"""

SLOW_GOVERNORS = {"powersave", "schedutil", "ondemand", "conservative"}
"""CPU frequency governors that lower the clock rate (Linux, admin-guide/pm/cpufreq.rst).

With the driver intel_pstate, the governor `powersave` lowers the clock rate less than with other
drivers (intel_pstate.rst).
"""

FINDINGS: dict[str, Explained] = {
    "cpu-mask": Explained(
        "limits", "warn",
        "The affinity mask, which a cgroup or the batch system sets, has fewer CPUs than the tasks"
        " of the recipe on a node: threads share CPUs, and the run is slower.",
        "request tasks_per_node x cpus_per_task CPUs, or reduce cpus_per_task in the recipe",
        "for real: taskset",
    ),
    "cpu-quota": Explained(
        "limits", "warn",
        "The CPU quota of a cgroup is smaller than the CPUs of the tasks: the kernel stops the"
        " threads for a part of each period.",
        "raise the quota (cpu.max, `docker run --cpus`), or reduce cpus_per_task in the recipe",
        "for real: a cgroup with a quota, where root may make one; described nodes with v1 and v2",
    ),
    "smt": Explained(
        "limits", "warn",
        "The tasks need more CPUs than there are cores in the mask: two threads share the"
        " arithmetic units of a core.",
        "reduce cpus_per_task to the cores (Slurm: the option --hint=nomultithread)",
        "described node with two threads per core",
    ),
    "numa": Explained(
        "limits", "warn",
        "The CPUs of a task are on several NUMA nodes: a part of its memory accesses is slow"
        " (guide: Threads, NUMA and affinity).",
        "use one task per NUMA node, or a multiple of it, with the CPUs of one NUMA node each",
        "described node with two sockets",
    ),
    "governor": Explained(
        "limits", "warn",
        "The frequency governor lowers the clock rate of the cores: rates are lower and differ"
        " between nodes.",
        "an administrator sets the governor: cpupower frequency-set -g performance",
        "described node",
    ),
    "bfloat": Explained(
        "limits", "warn",
        "The recipe trains in bf16 on CPUs without instructions for it, or on Arm CPUs, for whose"
        " instructions oneDNN has no gradients of convolutions: this is correct and slow.",
        "add --set precision=fp32, or use nodes with AVX-512 BF16 or AMX",
        "described nodes: AVX2 only, Arm with bf16",
    ),
    "target-flags": Explained(
        "limits", "warn",
        "The CPU lacks instruction sets of the target: the verdict is NO REFERENCE.",
        "choose a recipe for this hardware (`trimaran list`), or nodes with these instructions",
        "described node with AVX2 only",
    ),
    "target-cores": Explained(
        "limits", "warn",
        "The run may use another number of cores than the target has: the verdict is NO REFERENCE.",
        "run on as many CPUs as the target has: `taskset`, or the options of the batch system",
        "for real: taskset",
    ),
}
"""Documentation of the findings about CPUs, by ID."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the CPUs of a node that runs the recipe."""
    subjects = (_mask, _quota, _smt, _numa, _governor, _bf16, _flags, _target_cores)
    return [finding for subject in subjects if (finding := subject(situation)) is not None]


def cpu_list(text: str) -> set[int]:
    """Return the numbers in a list of CPUs, such as `0-3,8` (Linux, cpuset(7), list format)."""
    found_cpus: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found_cpus.update(range(int(first), int(last or first) + 1))
    return found_cpus


def status_field(facts: NodeFacts, name: str) -> str | None:
    """Return a field of /proc/self/status, such as `Cpus_allowed_list`; None if it is missing."""
    match = re.search(rf"^{name}:\s*(.*)$", facts.text("self-status") or "", re.MULTILINE)
    return match[1] if match else None


def mask(facts: NodeFacts) -> set[int]:
    """Return the CPUs that the process may use (affinity mask); empty if they are unknown."""
    return cpu_list(status_field(facts, "Cpus_allowed_list") or "")


def wanted(situation: Situation) -> int | None:
    """Return the number of CPUs that the recipe needs on each node; None without a recipe."""
    if situation.recipe is None:
        return None
    resources = situation.recipe.recipe.resources
    return resources.tasks_per_node * resources.cpus_per_task


def _finding(identifier: str, good: bool, cause: str) -> Finding:
    return found(FINDINGS, identifier, "ok" if good else "warn", cause)


def _mask(situation: Situation) -> Finding | None:
    cpus, need = mask(situation.facts), wanted(situation)
    if not cpus:
        return None
    listed = status_field(situation.facts, "Cpus_allowed_list")
    cause = f"usable CPUs: {len(cpus)} ({listed})"
    if need is not None:
        cause += f"; needed by the tasks of a node: {need}"
    return _finding("cpu-mask", need is None or len(cpus) >= need, cause)


def quota(facts: NodeFacts) -> float | None:
    """Return the smallest CPU quota of the cgroups as a number of CPUs; None without a quota."""
    quotas = [
        int(match[1]) / int(match[2])
        for line in (facts.text("cgroup-cpu") or "").splitlines()
        if (match := re.fullmatch(r"(\d+) (\d+)\s*", line)) and int(match[2]) > 0
    ]
    return min(quotas, default=None)


def _quota(situation: Situation) -> Finding | None:
    given, need = quota(situation.facts), wanted(situation)
    if given is None or need is None:
        return None
    return _finding("cpu-quota", given >= need,
                    f"quota in CPUs: {given:g}; needed by the tasks of a node: {need}")


def cores(facts: NodeFacts) -> list[set[int]]:
    """Return the usable CPUs of each processor core; empty if they are unknown.

    Usable CPUs are in the affinity mask. A core with SMT has several CPUs.
    """
    cpus = mask(facts)
    groups = [cpu_list(line) for line in (facts.text("siblings") or "").splitlines()]
    return [group & cpus for group in groups if group & cpus]


def _smt(situation: Situation) -> Finding | None:
    groups, need = cores(situation.facts), wanted(situation)
    if not groups or need is None:
        return None
    threads = max(map(len, groups))
    cause = f"usable cores: {len(groups)}, threads of a core: {threads}; needed CPUs: {need}"
    return _finding("smt", need <= len(groups) or threads == 1, cause)


def numa_nodes(facts: NodeFacts) -> dict[str, set[int]]:
    """Return the usable CPUs (those in the affinity mask) of each NUMA node.

    NUMA nodes without usable CPUs are left out.
    """
    lines = re.findall(r"^(node\d+)/cpulist:(.*)$", facts.text("numa") or "", re.MULTILINE)
    return {name: own for name, text in lines if (own := cpu_list(text) & mask(facts))}


def _numa(situation: Situation) -> Finding | None:
    nodes = numa_nodes(situation.facts)
    if not nodes or situation.recipe is None:
        return None
    resources = situation.recipe.recipe.resources
    tasks, each = resources.tasks_per_node, resources.cpus_per_task
    largest = max(map(len, nodes.values()))
    cause = (f"NUMA nodes: {len(nodes)}, usable CPUs of one: up to {largest}; tasks: {tasks}, CPUs"
             f" of one: {each}")
    return _finding("numa", len(nodes) == 1 or _fits(nodes, tasks, each), cause)


def _fits(nodes: dict[str, set[int]], tasks: int, each: int) -> bool:
    """Return whether each of `tasks` tasks with `each` CPUs can be placed within one NUMA node."""
    return sum(len(cpus) // each for cpus in nodes.values()) >= tasks


def _governor(situation: Situation) -> Finding | None:
    rows = re.findall(r"^\s*(\d+) (\S+)$", situation.facts.text("governors") or "", re.MULTILINE)
    if not rows:
        return None
    driver = situation.facts.text("cpufreq-driver") or "unknown"
    listed = ", ".join(f"{name} on {count} CPUs" for count, name in rows)
    slow = SLOW_GOVERNORS & {name for _, name in rows}
    return _finding("governor", not slow, f"{listed} (driver {driver})")


def _known_flags(facts: NodeFacts) -> set[str]:
    return set((facts.text("cpu-flags") or "").split())


def _bf16(situation: Situation) -> Finding | None:
    flags, recipe = _known_flags(situation.facts), situation.recipe
    if not flags or recipe is None or recipe.recipe.resources.gpus_per_task:
        return None
    if recipe.recipe.args.get("precision") != "bf16":
        return None
    own = sorted(flags & BF16_FLAGS)
    listed = ", ".join(own) or "none"
    if "bf16" in flags:
        listed = "bf16 of Arm, without gradients of convolutions in oneDNN"
    return _finding("bfloat", bool(own), f"instructions for bf16: {listed}")


def _flags(situation: Situation) -> Finding | None:
    flags, target = _known_flags(situation.facts), situation.target
    if not flags or target is None or not target.node.cpu_flags:
        return None
    missing = sorted(set(target.node.cpu_flags) - flags)
    cause = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(target.node.cpu_flags)}"
    return _finding("target-flags", not missing, f"the processor {cause}")


def _target_cores(situation: Situation) -> Finding | None:
    cpus, target = mask(situation.facts), situation.target
    if not cpus or target is None or target.node.cores is None:
        return None
    return _finding("target-cores", len(cpus) == target.node.cores,
                    f"usable CPUs: {len(cpus)}; cores of the target: {target.node.cores}")
