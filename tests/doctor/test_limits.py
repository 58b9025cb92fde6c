"""Checks of the group `limits`, on this machine with changed limits, and on simulated machines."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from hosts import caused, facts_of
from situations import by_id, probed, situation, with_facts
from trimaran.doctor import limits, processors
from trimaran.doctor.facts import NodeFacts
from trimaran.recipes import library

FORMER = "infiniband-lustre"
TWO_NODES = {"nodes": 2, "tasks_per_node": 2, "cpus_per_task": 4}


@cache
def here() -> NodeFacts:
    return probed()


@cache
def machine(name: str) -> NodeFacts:
    return facts_of(name)


def test_quickstart_fails_nowhere_here() -> None:
    found = limits.check(situation(here()))
    assert not [one for one in found if one.level == "fail"]
    assert {"cpu-mask", "memory-limit", "shm", "open-files"} <= set(by_id(found))


def test_findings_have_a_cause_of_one_line() -> None:
    found = limits.check(situation(machine(FORMER), resources=TWO_NODES))
    assert all(one.cause and "\n" not in one.cause + one.remedy for one in found)
    assert all(bool(one.remedy) == (one.level != "ok") for one in found)


def test_login_node_is_not_judged() -> None:
    from trimaran.site_file import Cluster

    assert limits.check(situation(machine(FORMER), cluster=Cluster())) == []
    assert limits.check(situation(machine(FORMER), cluster=Cluster(), login=here()))


def test_nothing_is_known_in_a_bare_container() -> None:
    found = limits.check(situation(NodeFacts("bare")))
    assert not [one for one in found if one.level != "ok"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_affinity_mask() -> None:
    first = min(os.sched_getaffinity(0))
    found = limits.check(situation(probed(["taskset", "-c", str(first)])))
    assert "usable CPUs: 1 (" in caused("cpu-mask", found).cause
    assert caused("target-cores", found).cause == "usable CPUs: 1; cores of the target: 2"


def test_lists_of_cpus() -> None:
    assert processors.cpu_list("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11}
    assert processors.cpu_list("") == set()


@pytest.mark.parametrize(("name", "cpus", "quota"), [(FORMER, 4, 4.0), ("container-nfs", 1, 1.5)])
def test_quota_of_both_versions_of_cgroups(name: str, cpus: int, quota: float) -> None:
    assert processors.quota(machine(name)) == quota
    enough = situation(machine(name), resources={"cpus_per_task": cpus})
    assert by_id(limits.check(enough))["cpu-quota"].level == "ok"
    more = situation(machine(name), resources={"cpus_per_task": cpus + 1})
    assert f"quota in CPUs: {quota:g}" in caused("cpu-quota", limits.check(more)).cause


def test_the_smallest_limit_of_the_cgroups_counts() -> None:
    node = with_facts(NodeFacts("n"), {
        "cgroup-cpu": "max 100000 \n400000 100000 \n50000 100000 \n-1 100000 ",
        "self-limits": "Max open files            1024                 262144               files",
    })
    assert processors.quota(node) == 0.5
    assert limits.soft_limit(node, "Max open files") == 1024


def test_threads_of_a_core() -> None:
    four = situation(machine(FORMER), resources={"cpus_per_task": 4})
    assert by_id(limits.check(four))["smt"].level == "ok"
    five = situation(machine(FORMER), resources={"cpus_per_task": 5})
    assert "usable cores: 4, threads of a core: 2" in caused("smt", limits.check(five)).cause


def test_threads_of_a_core_outside_of_the_mask_do_not_count() -> None:
    status = "Cpus_allowed_list:\t0-3\n"  # one thread of each core
    one = with_facts(machine(FORMER), {"self-status": status})
    assert by_id(limits.check(situation(one, resources={"cpus_per_task": 5})))["smt"].level == "ok"


@pytest.mark.parametrize(("tasks", "each", "fits"), [
    (1, 4, True), (2, 4, True), (1, 5, False), (3, 3, False), (4, 2, True), (5, 2, False),
])
def test_tasks_on_numa_nodes(tasks: int, each: int, fits: bool) -> None:
    resources = {"tasks_per_node": tasks, "cpus_per_task": each}
    found = limits.check(situation(machine(FORMER), resources=resources))
    assert (by_id(found)["numa"].level == "ok") == fits
    if not fits:
        assert "NUMA nodes: 2, usable CPUs of one: up to 4" in caused("numa", found).cause


def test_governor() -> None:
    found = limits.check(situation(machine(FORMER)))
    assert caused("governor", found).cause == "schedutil on 8 CPUs (driver acpi-cpufreq)"
    fast = with_facts(machine(FORMER), {"governors": "      8 performance"})
    assert by_id(limits.check(situation(fast)))["governor"].level == "ok"


def test_bf16_needs_instructions() -> None:
    node = machine("container-nfs")
    slow = situation(node, args={"precision": "bf16"})
    assert "none" in caused("bfloat", limits.check(slow)).cause
    assert "bfloat" not in by_id(limits.check(situation(node)))  # `auto` takes fp32
    gpu = situation(node, args={"precision": "bf16"}, resources={"gpus_per_task": 1})
    assert "bfloat" not in by_id(limits.check(gpu))
    flags = with_facts(node, {"cpu-flags": "avx2 amx_bf16"})
    found = limits.check(situation(flags, args={"precision": "bf16"}))
    assert by_id(found)["bfloat"].level == "ok"


def test_instruction_sets_of_the_target() -> None:
    wanted = {"cpu_flags": ["avx2", "avx512f"]}
    found = limits.check(situation(machine("container-nfs"), target_node=wanted))
    assert caused("target-flags", found).cause == "the processor lacks avx512f"


def group(controller: str, limits_: dict[str, int]) -> Path:
    """Create a cgroup (v1) with limits and return its folder, or skip the test."""
    folder = Path("/sys/fs/cgroup", controller, f"trimaran-test-{os.getpid()}")
    try:
        folder.mkdir()
        for name, value in limits_.items():
            (folder / name).write_text(str(value))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"no cgroup can be made: {error}")
    return folder


def inside(folder: Path) -> NodeFacts:
    """Run a probe in a cgroup, remove the cgroup, and return the facts."""
    try:
        return probed(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(folder)])
    finally:
        folder.rmdir()


def test_memory_of_a_real_cgroup() -> None:
    node = inside(group("memory", {"memory.limit_in_bytes": 2**29}))
    assert "limited by a cgroup to 0.50 GiB" in caused(
        "memory-limit", limits.check(situation(node))).cause


def test_quota_of_a_real_cgroup() -> None:
    node = inside(group("cpu", {"cpu.cfs_quota_us": 50_000, "cpu.cfs_period_us": 100_000}))
    assert "quota in CPUs: 0.5;" in caused("cpu-quota", limits.check(situation(node))).cause


def test_memory_below_the_target() -> None:
    found = limits.check(situation(here(), target_node={"memory_gib": 4096}))
    assert caused("memory-limit", found).level == "warn"
    found = limits.check(situation(machine(FORMER), target_node={"memory_gib": 9}))
    assert "limited by a cgroup to 8.00 GiB" in caused("memory-limit", found).cause
    found = limits.check(situation(machine(FORMER), target_node={"memory_gib": 8}))
    assert by_id(found)["memory-limit"].level == "ok"


def test_memory_below_the_expected_peak_of_the_ranks() -> None:
    base = situation(here())
    assert base.recipe is not None
    known = library.load("futuregan/p100x1-convergence")  # 15.5 GB, judged here without a GPU
    recipe = known.recipe.model_copy(
        update={"resources": base.recipe.recipe.resources.model_copy(update={"tasks_per_node": 2})}
    )
    for gib, level in ((28, "fail"), (29, "ok")):
        node = with_facts(base.facts, {"meminfo": f"MemTotal: {gib << 20} kB"})
        found = limits.check(replace(base, facts=node, recipe=replace(known, recipe=recipe)))
        assert by_id(found)["memory-limit"].level == level
    assert "2 rank(s) that reach the expected peak memory take 28.87 GiB" in caused(
        "memory-limit", limits.check(replace(
            base, facts=with_facts(base.facts, {"meminfo": "MemTotal: 9 kB"}),
            recipe=replace(known, recipe=recipe)))).cause


def test_memory_that_is_too_small_to_import_pytorch() -> None:
    found = limits.check(situation(machine("container-nfs")))  # 128 MiB
    assert caused("memory-limit", found).level == "fail"
    enough = with_facts(machine("container-nfs"), {"cgroup-memory": str(limits.IMPORT_BYTES)})
    assert caused("memory-limit", limits.check(situation(enough))).level == "warn"  # not 6 GiB
    two = limits.check(situation(enough, resources={"tasks_per_node": 2}))
    assert caused("memory-limit", two).level == "fail"


def test_huge_pages() -> None:
    cause = caused("huge-pages", limits.check(situation(machine(FORMER)))).cause
    assert cause == "transparent huge pages: never; 58.6 GiB reserved"
    reserved = with_facts(machine(FORMER), {"thp": "always [madvise] never"})
    assert caused("huge-pages", limits.check(situation(reserved)))


def test_small_shared_memory() -> None:
    small = probed(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                    'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"', "sh"])
    two = limits.check(situation(small, resources={"tasks_per_node": 2}))
    assert caused("shm", two).cause.startswith("1 MiB of 1 MiB free in /dev/shm, 8 MiB needed")
    assert by_id(limits.check(situation(small)))["shm"].level == "ok"  # a single rank


def test_shared_memory_of_gpus_and_of_others() -> None:
    gpus = {"tasks_per_node": 2, "gpus_per_task": 1}
    assert caused("shm", limits.check(situation(machine("container-nfs"), resources=gpus)))
    locked = with_facts(here(), {"shm-writable": "no"})
    assert "not writable" in caused("shm", limits.check(situation(locked))).cause


def limited(option: str, value: int) -> NodeFacts:
    return probed(["sh", "-c", f'ulimit {option} {value}; exec "$@"', "sh"])


def test_open_files() -> None:
    few = limited("-n", 100)
    assert "100 open files allowed" in caused("open-files", limits.check(situation(few))).cause
    assert by_id(limits.check(situation(limited("-n", 260))))["open-files"].level == "ok"
    many = situation(machine(FORMER), resources={"nodes": 100, "tasks_per_node": 2})
    assert caused("open-files", limits.check(many))  # 1024 of 1056


def test_locked_memory_on_a_node_with_infiniband() -> None:
    status, small = machine("container-nfs").facts["self-status"].text, limited("-l", 64)
    node = with_facts(machine(FORMER), {
        "self-limits": small.facts["self-limits"].text, "self-status": status,
    })
    assert caused("memlock", limits.check(situation(node, resources=TWO_NODES))).level == "fail"
    assert caused("memlock", limits.check(situation(node))).level == "warn"  # one node
    root = with_facts(node, {"self-status": "CapEff:\t000001ffffffffff\n"})
    found = limits.check(situation(root, resources=TWO_NODES))
    assert by_id(found)["memlock"].level == "ok"
    alone = with_facts(small, {})  # no device for RDMA
    assert "memlock" not in by_id(limits.check(situation(alone, resources=TWO_NODES)))


def test_locked_memory_is_never_a_fail_without_infiniband() -> None:
    found = limits.check(situation(
        with_facts(machine("efa-nvidia"), {"self-limits": "Max locked memory  65536  65536"}),
        resources=TWO_NODES,
    ))
    assert caused("memlock", found).level == "warn"


def test_processes_of_an_ordinary_user() -> None:
    nobody = {"self-status": "Uid:\t65534\t65534\t65534\t65534\nCpus_allowed_list:\t0-1\n"}
    row = re.compile(r"^Max processes +\S+", re.MULTILINE)
    text = row.sub("Max processes    1", here().facts["self-limits"].text)
    found = limits.check(situation(with_facts(here(), {**nobody, "self-limits": text})))
    assert caused("processes", found).level == "fail"
    text = row.sub("Max processes    100", text)
    found = limits.check(situation(with_facts(here(), {**nobody, "self-limits": text})))
    assert caused("processes", found).level == "warn"


def test_processes_of_a_real_user() -> None:
    # Processes of the user in other namespaces do not count.
    user = (["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            if os.geteuid() == 0 else ["unshare", "--user", "--map-current-user"])
    node = probed([*user, "prlimit", "--nproc=200"])
    assert "200 processes" in caused("processes", limits.check(situation(node))).cause


def test_processes_of_a_cgroup() -> None:
    found = limits.check(situation(machine("container-nfs"), resources={"cpus_per_task": 4}))
    assert caused("processes", found).level == "fail"  # 2, by pids.max
