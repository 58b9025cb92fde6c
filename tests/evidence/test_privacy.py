"""Private facts are found and removed, and what may be published is kept."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trimaran.evidence import privacy

HERE = ["node017.cluster.example", "alice"]


def noted(text: str) -> dict[str, Any]:
    return {"verdict": {"notes": [text]}}


def found(content: Any) -> list[str]:
    return [problem for _, problem in privacy.faults(content, HERE)]


@pytest.mark.parametrize(("text", "kept"), [
    ("data in /home/bob/images", "data in [path]"),
    ("see ~bob/x and ~/y", "see [path] and [path]"),
    ("--data=/scratch/p42/a,b", "--data=[path],b"),
    ("LD=/gpfs/a.so:/usr/lib/b.so", "LD=[path]:/usr/lib/b.so"),
    ("../../bob/run", "[path]"), ("home/bob/run", "[path]"),
    ("file:///gpfs/x", "[path]"), (r"C:\Users\bob", "[path]"),
    ("/usr/../home/bob", "[path]"), ("/data/p42", "[path]"),
    ("ran on node017", "ran on [host]"), ("node017.cluster.example is slow", "[host] is slow"),
    ("login.hpc.example.edu:22", "[host]:22"), ("gpu3.cluster", "[host]"),
    ("by alice", "by [host]"), ("mail bob@example.org", "mail [user]"),
    ("root@builder", "[user]"),
    ("10.1.2.3:29500", "[address]:29500"), ("at 192.168.0.7.", "at [address]."),
    ("fe80::1ff:fe23:4567:890a", "[address]"), ("2001:db8:0:0:0:0:0:1", "[address]"),
    ("02:42:ac:11:00:02", "[address]"),
])
def test_a_private_fact_is_replaced(text: str, kept: str) -> None:
    cleaned = privacy.cleaned(noted(text), HERE)
    assert cleaned == noted(kept)
    assert found(cleaned) == []
    assert found(noted(text)) != []


@pytest.mark.parametrize("text", [
    "995 img/s, 1/2 of it", "/usr/lib/x86_64-linux-gnu/libomp.so.5",
    "/sys/class/powercap/intel-rapl", "checkpoint.pt", "1.2.3.4.5",
    "run.json and metrics.jsonl agree", "12:30:45", "127.0.0.1", "::1", "2.13.0+cpu",
    "image sha256:10ff", "torch@sha256:10ff", "resnet-imagenet/v100x1-horovod-scaling@4",
    "https:", "a/b/c", "the bind to /opt/trimaran/model.py", "malice", "alice2",
])
def test_what_may_be_published_is_kept(text: str) -> None:
    assert privacy.cleaned(noted(text), HERE) == noted(text)
    assert found(noted(text)) == []


def test_paths_in_the_container_are_kept_in_the_command_only() -> None:
    content = {"run": {"command": ["train", "--data=/data", "--out=/out", "--initial=/initial.pt"]}}
    assert found(content) == []
    content["run"]["command"].append("--data=/data/../home/bob")
    assert found(content) == ["contains a path"]
    assert found({"run": {"job": "/data"}}) == ["contains a path"]


@pytest.mark.parametrize("key", ["HOSTNAME", "SLURM_NODELIST", "MASTER_ADDR", "user", "gpu_uuid",
                                 "HF_TOKEN", "SLURM_JOB_ACCOUNT"])
def test_the_value_of_a_telling_key_is_removed(key: str) -> None:
    content = {"run": {"environment": {"variables": {key: "n1", "OMP_NUM_THREADS": "2"}}}}
    assert len(found(content)) == 1
    cleaned = privacy.cleaned(content, [])
    assert cleaned["run"]["environment"]["variables"] == {
        key: "[removed]", "OMP_NUM_THREADS": "2"}
    assert found(cleaned) == []


def test_a_version_of_a_package_is_no_address() -> None:
    packages = {"run": {"environment": {"packages": {"cudnn": "9.10.2.21"}}}}
    assert found(packages) == []
    assert found({"run": {"environment": {"cudnn": "9.10.2.21"}}}) == ["contains an address"]


def test_a_private_key_is_found_and_replaced() -> None:
    content = {"run": {"environment": {"/home/bob/x": 1}}}
    assert found(content) == ["contains a path"]
    assert privacy.cleaned(content, []) == {"run": {"environment": {"[path]": 1}}}


def test_no_entry_is_lost_if_two_keys_have_private_facts_or_control_characters() -> None:
    kept = privacy.cleaned({"/home/a/x": 1, "/home/b/y": 2, "a\x1b": 3}, [])
    assert kept == {"[path]": 1, "[path]-2": 2, "a\\u001b": 3}
    assert list(privacy.faults(kept, [])) == []


@pytest.mark.parametrize(("text", "found"), [
    ("2026-11-28-login17-8gpu.json", "login17"), ("8gpu-login17", "login17"),
    ("8gpu-LOGIN17.json", "login17"), ("login170-8gpu", None), ("epyc-2core", None),
])
def test_a_name_is_found_between_hyphens(text: str, found: str | None) -> None:
    assert privacy.name_in(text, ["login17.example.edu", "root"]) == found


def test_the_source_in_a_recipe_may_name_a_site_on_the_internet() -> None:
    basis = {"verdict": {"rows": [{"basis": "docs.nvidia.com (2024)"}]}}
    assert found(basis) == []
    assert found({"verdict": {"rows": [{"basis": "measured in /home/bob"}]}}) == ["contains a path"]


@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\nb", "a\tb", "a\u202eb"])
def test_control_characters_are_refused_and_escaped(text: str) -> None:
    assert found(noted(text)) == ["contains control characters"]
    assert found(privacy.cleaned(noted(text), [])) == []


@pytest.mark.parametrize("text", [
    "a." * 300_000, "~" * 500_000, "::" * 250_000 + "g", "::" + "a" * 500_000 + "g",
    "home/" * 100_000, "a@" * 250_000, "1." * 250_000, "/" * 500_000, "a-" * 250_000,
    "\u202e" * 9999,
])
def test_a_long_text_takes_little_time(text: str) -> None:
    start = time.process_time()
    found(noted(text))
    assert time.process_time() - start < 5


def test_names_that_identify_nobody_are_no_private_facts() -> None:
    assert privacy.telling(["root", "ubuntu", "n1", "", "localhost.localdomain"]) == [
        "localhost.localdomain"]
    assert privacy.telling(["node017.cluster"]) == ["node017.cluster", "node017"]
