"""Tests of the memory of a node, which the control groups of a process may limit."""

from __future__ import annotations

from pathlib import Path

from trainkit import node_memory


def test_the_limit_of_a_control_group_counts(tmp_path: Path) -> None:
    whole = tmp_path / "meminfo"
    whole.write_text("MemTotal: 99 kB\nMemAvailable: 10 kB\n")
    group = tmp_path / "cgroup/job/step"
    group.mkdir(parents=True)
    own = "0::/job/step\n"
    assert node_memory.free_bytes(whole, tmp_path / "cgroup", own) == 10240
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert node_memory.free_bytes(whole, tmp_path / "cgroup", own) == 10240
    (group.parent / "memory.max").write_text("6000\n")
    (group.parent / "memory.current").write_text("1000\n")
    assert node_memory.free_bytes(whole, tmp_path / "cgroup", own) == 5000
    (group.parent / "memory.stat").write_text("anon 100\ninactive_file 300\nactive_file 200\n")
    assert node_memory.free_bytes(whole, tmp_path / "cgroup", own) == 5500
    assert node_memory.smallest_limit(tmp_path / "cgroup", own) == 6000
    assert node_memory.total_bytes(whole) == 99 * 1024
    assert node_memory.smallest_limit(tmp_path / "cgroup", "0::/other\n") is None


def test_a_field_is_read_beside_a_name_of_any_bytes(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_bytes(b"Name:\t\xff\nVmDataOther:\t5 kB\nVmData:\t    7 kB\n")
    assert node_memory.field_bytes(status, "VmData") == 7 * 1024


def test_the_limit_of_a_control_group_of_version_1_counts(tmp_path: Path) -> None:
    whole = tmp_path / "meminfo"
    whole.write_text("MemAvailable: 10 kB\n")
    group = tmp_path / "cgroup/memory/slurm/job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("6000\n")
    (group / "memory.usage_in_bytes").write_text("2000\n")
    (group / "memory.stat").write_text("cache 9\ntotal_inactive_file 400\ntotal_active_file 0\n")
    own = "4:cpu,cpuacct:/other\n3:memory:/slurm/job\n0::/\n"
    assert node_memory.free_bytes(whole, tmp_path / "cgroup", own) == 4400
