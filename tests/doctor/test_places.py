"""Checks of the group `places` (folders): real small disks and clocks, simulated file systems."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hosts
from hosts import caused, facts_of
from situations import by_id, probed, situation, with_facts
from trimaran.doctor import data_folders, folders, places, queues
from trimaran.doctor.facts import NodeFacts
from trimaran.site_file import Cluster, Site

LUSTRE = "infiniband-lustre"
MOUNT = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


@cache
def machine(name: str) -> NodeFacts:
    return facts_of(name)


@cache
def on_lustre() -> NodeFacts:
    return facts_of(LUSTRE, place_runs="/lustre/scratch/runs", place_data="/lustre/data",
                          place_cache="/home/user/.cache/trimaran")


def mounted(options: str, folder: Path, more: str = "") -> NodeFacts:
    """Mount a tmpfs, and return the facts of this machine with scratch on the tmpfs.

    The scratch folder is `runs` in the mount point `folder`. `options` are the options of the
    mount, and `more` is shell text that follows the mount command.
    """
    script = f'mount -t tmpfs -o {options} none {folder} {more} && exec "$@"'
    return probed([*MOUNT, script, "sh"], place_scratch=str(folder / "runs"))


def test_quickstart_fails_nowhere_here(tmp_path: Path) -> None:
    node = probed(place_cache=str(tmp_path), place_runs=str(tmp_path / "runs"))
    found = places.check(situation(node))
    assert not [one for one in found if one.level == "fail"]
    assert {"place-missing", "disk-space"} <= set(by_id(found))


def test_nothing_is_known_in_a_bare_container() -> None:
    assert places.check(situation(NodeFacts("bare"))) == []


def test_full_disk(tmp_path: Path) -> None:
    full = mounted("size=1m", tmp_path, f"&& dd if=/dev/zero of={tmp_path}/full bs=1M count=1")
    assert caused("disk-space", places.check(situation(full))).level == "fail"
    nearly = mounted("size=1m", tmp_path)
    found = caused("disk-space", places.check(situation(nearly)))
    assert found.level == "warn"
    assert f"the scratch folder {tmp_path}/runs: 0.00 GiB free, less than 0.2" in found.cause


def test_disk_without_inodes(tmp_path: Path) -> None:
    few = mounted("nr_inodes=20", tmp_path)
    found = caused("inodes", places.check(situation(few)))
    assert found.level == "warn"
    assert "19 free inodes" in found.cause
    none = mounted("nr_inodes=2", tmp_path, f"&& touch {tmp_path}/last")
    assert caused("inodes", places.check(situation(none))).level == "fail"


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    closed = mounted("ro", tmp_path)
    found = caused("place-missing", places.check(situation(closed)))
    assert found.level == "fail"
    assert found.cause == (f"the scratch folder {tmp_path / 'runs'} is not writable:"
                           f" it would be made in {tmp_path}")
    cache_only = with_facts(closed, {"place.cache": closed.facts["place.scratch"].text})
    del cache_only.facts["place.scratch"]
    assert caused("place-missing", places.check(situation(cache_only))).level == "warn"


def test_run_directories_may_be_elsewhere(tmp_path: Path) -> None:
    node = mounted("ro", tmp_path)
    runs = with_facts(node, {"place.runs": node.facts["place.scratch"].text})
    del runs.facts["place.scratch"]
    assert caused("place-missing", places.check(situation(runs)), "fail")
    assert caused("place-missing", places.check(situation(runs, recipe=None)), "warn")
    assert caused("place-missing", places.check(situation(runs, cluster=Cluster())), "warn")


def test_folder_that_a_compute_node_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    login = probed(place_scratch=str(tmp_path / "runs"), place_local=str(tmp_path / "local"))
    node = mounted("size=1g", tmp_path)  # hides the folder
    found = places.check(situation(node, cluster=Cluster(), login=login))
    assert caused("place-missing", found, "fail").cause == (
        f"the scratch folder {tmp_path}/runs is not on this node: the login node has"
        f" {tmp_path}/runs, this node {tmp_path}")
    for one, other in ((login, login), (login, node)):  # the node may have more folders
        found = places.check(situation(one, cluster=Cluster(), login=other))
        assert by_id(found)["place-missing"].level == "ok"


def test_folder_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "hangs").mkdir()
    hosts.program(tmp_path, "df", "case $PWD in */hangs) sleep 30 ;; esac")
    begun = time.monotonic()
    node = facts_of(tmp_path, place_scratch="/hangs", place_runs="/hangs", place_data="/hangs")
    assert time.monotonic() - begun < 28  # once for the folder, and once for the data set
    assert "did not answer" in caused("place-missing", places.check(situation(node))).cause


def test_cache_has_its_own_finding_of_space(tmp_path: Path) -> None:
    node = mounted("size=1m", tmp_path)
    cache = with_facts(node, {"place.cache": node.facts["place.scratch"].text})
    del cache.facts["place.scratch"]
    assert "disk-space" not in by_id(places.check(situation(cache)))  # `cache-space`


def test_local_storage_is_on_compute_nodes_only(tmp_path: Path) -> None:
    node = with_facts(mounted("size=1m", tmp_path), {})
    local = with_facts(node, {"place.local": node.facts["place.scratch"].text})
    del local.facts["place.scratch"]
    login = situation(local, cluster=Cluster())
    assert "disk-space" not in by_id(places.check(login))
    compute = situation(local, cluster=Cluster(), login=node)
    assert "less than 4.0" in caused("disk-space", places.check(compute)).cause


@pytest.mark.parametrize(("free", "level"), [(0, "fail"), (1, "warn"), (200, "ok")])
def test_space_for_a_run(free: int, level: str) -> None:
    text = f"/runs\n/runs\nwritable\next4 1000000 {free * 1024} 100 - /\n/dev/sda1"
    found = places.check(situation(with_facts(NodeFacts("n"), {"place.runs": text})))
    assert by_id(found)["disk-space"].level == level
    assert "inodes" not in by_id(found)  # the file system does not count them


def test_a_file_system_that_does_not_count_its_space_is_not_full() -> None:
    text = "/runs\n/runs\nwritable\nfuse.object 0 0 - - /runs\nobject"
    found = places.check(situation(with_facts(NodeFacts("n"), {"place.runs": text})))
    assert "disk-space" not in by_id(found)
    assert by_id(found)["place-missing"].level == "ok"


@pytest.mark.parametrize(
    "text", ["", "a\nwritable\n", "a\na\nwritable\nno numbers at all here ok\nb"]
)
def test_damaged_facts_of_a_folder(text: str) -> None:
    assert folders.place_of("runs", text) is None


def test_quota_of_lustre_and_nfs() -> None:
    found = caused("quota", places.check(situation(on_lustre())))
    assert found.level == "fail"  # the hard limit of Lustre; the soft one of the home folder
    assert "/lustre/scratch/runs: 1048576000 of 1048576000 KiB" in found.cause
    assert "10100 of 20000 KiB" in found.cause


@pytest.mark.parametrize(("used", "level"), [(899, "ok"), (901, "warn"), (1000, "fail")])
def test_quota_without_a_soft_limit(used: int, level: str) -> None:
    node = with_facts(NodeFacts("n"), {
        "place.runs": "/runs\n/runs\nwritable\next4 1000000000 900000000 9000 8000 /\n/dev/sda1",
        "quota": f"Disk quotas for user x (uid 1):\n /dev/sda1 {used} 0 1000 0 5 0 0 0",
    })
    assert by_id(places.check(situation(node)))["quota"].level == level


def test_quota_of_another_file_system_is_left_out() -> None:
    assert places.quotas("     Filesystem  blocks   quota   limit   grace") == ("", [])
    name, (size, files) = places.quotas("/lustre [1024]* 10 20 6d 5* 4 0 -")
    assert (name, size.used, size.soft, size.hard) == ("/lustre", 1024, 10, 20)
    assert (files.what, files.used, files.soft, files.hard) == ("files", 5, 4, 0)


def test_type_of_the_file_system_of_a_folder() -> None:
    node = machine("container-nfs")
    assert data_folders.file_system(node, "/nfs data/packed") == "nfs"
    assert data_folders.file_system(node, "/nfs") == "overlay"
    assert data_folders.file_system(NodeFacts("bare"), "/") is None
    damaged = with_facts(node, {"mountinfo": "1 0 0:1 / /a\\999 rw - nfs server rw"})
    assert data_folders.file_system(damaged, "/a") is None


def test_compiler_cache_on_lustre() -> None:
    compiled = places.check(situation(on_lustre(), args={"compile": "default"}))
    assert "/lustre/scratch/runs, on lustre" in caused("compiler-cache", compiled).cause
    assert "compiler-cache" not in by_id(places.check(situation(on_lustre())))


def test_compiler_cache_of_a_variable() -> None:
    env = {"TRITON_CACHE_DIR": "/inside/triton"}
    bound = Site.model_validate({"schema": 1, "binds": {"/nfs data": "/inside"}})
    node = machine("container-nfs")
    found = places.check(situation(node, env=env, site=bound))
    assert "TRITON_CACHE_DIR is /nfs data/triton, on nfs" in caused("compiler-cache", found).cause
    # Without the bind, the folder is only in the container.
    found = places.check(situation(node, env=env))
    assert "compiler-cache" not in by_id(found)


def test_compiler_cache_of_the_site_file() -> None:
    node, args = on_lustre(), {"compile": "default"}
    found = places.check(situation(node, args=args, cluster=Cluster()))
    assert "compiler-cache" not in by_id(found)  # a job compiles on the node's own disk
    kept = Cluster(compiler_caches=Path("/lustre/scratch/code"))
    cause = caused("compiler-cache", places.check(situation(node, cluster=kept))).cause
    assert "compiler_caches of the site file is /lustre/scratch/code, on lustre" in cause


@pytest.mark.parametrize(("kind", "named"), [
    ("fuse.sshfs", True), ("fuse.unheard_of", True), ("9p", True), ("nfs4", True),
    ("xfs", False), ("tmpfs", False),
])
def test_compiler_cache_of_a_job_is_on_the_node(kind: str, named: bool) -> None:
    mounts = f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /shared rw - {kind} server rw"
    node = with_facts(machine("container-nfs"), {"mountinfo": mounts, "temporary": "/shared/tmp"})
    local = Cluster(local_storage=Path("/shared/disk"))
    for cluster, folder in ((Cluster(), "/shared/tmp"), (local, "/shared/disk")):
        found = by_id(places.check(situation(node, cluster=cluster, login=NodeFacts("login"))))
        assert found["compiler-cache"].level == ("warn" if named else "ok")
        assert folder in found["compiler-cache"].cause
        assert (f", on {kind}" in found["compiler-cache"].cause) == named
        # The login node may have another temporary folder.
        assert "compiler-cache" not in by_id(places.check(situation(node, cluster=cluster)))


def test_the_probe_reads_the_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/a folder")
    assert probed().text("temporary") == "/a folder"
    monkeypatch.delenv("TMPDIR")
    assert probed().text("temporary") == "/tmp"


def test_stripes_of_large_files(tmp_path: Path) -> None:
    root = hosts.copy(LUSTRE, tmp_path)
    with (root / "lustre/data/big").open("wb") as file:
        file.truncate(2**31)  # without blocks on the disk
    node = facts_of(root, place_data="/lustre/data")
    two = {"nodes": 2}
    found = caused("lustre-stripes", places.check(situation(node, resources=two)))
    assert "1 of 1 files of more than 1 GiB in /lustre/data have one stripe" in found.cause
    assert "lfs migrate -c 2" in found.remedy
    assert "lustre-stripes" not in by_id(places.check(situation(node)))  # one node reads
    wide = with_facts(node, {"stripes.1": "4"})
    assert by_id(places.check(situation(wide, resources=two)))["lustre-stripes"].level == "ok"


def test_no_stripes_of_small_files() -> None:
    found = places.check(situation(on_lustre(), resources={"nodes": 2}))
    assert "lustre-stripes" not in by_id(found)


def test_data_set_of_many_files(tmp_path: Path) -> None:
    counts = {}
    for count in (data_folders.MANY_FILES, data_folders.MANY_FILES + 2):
        script = (f'mount -t tmpfs none {tmp_path} && cd {tmp_path} && seq {count} | xargs touch'
                  ' && cd / && exec "$@"')
        counts[count] = probed([*MOUNT, script, "sh"], place_data=str(tmp_path))
    node = counts[data_folders.MANY_FILES + 2]
    on_nfs = {"place.data-1": node.facts["place.data-1"].text.replace("tmpfs", "nfs4", 1)}
    found = caused("small-files", places.check(situation(with_facts(node, on_nfs))))
    assert found.cause == f"{tmp_path} has more than 10000 files on nfs4"
    assert by_id(places.check(situation(node)))["small-files"].level == "ok"  # not over a network
    fewer = with_facts(counts[data_folders.MANY_FILES], on_nfs)
    assert by_id(places.check(situation(fewer)))["small-files"].level == "ok"


def test_several_data_sets(tmp_path: Path) -> None:
    node = probed(place_data=f"{tmp_path}\n\n{tmp_path / 'none'}\n")
    assert {"files.1", "files.2"} <= set(node.facts)
    assert node.number("files.1") == 0
    assert node.number("files.2") is None


def test_clock_of_a_node(tmp_path: Path) -> None:
    fast = hosts.copy("login-slurm", tmp_path)
    hosts.program(fast, "date", "exec /bin/date -d '+1 hour' \"$@\"")
    asked = int(time.time())
    node = facts_of(fast)
    right = facts_of("login-slurm")
    times = {"asked": str(asked), "answered": str(int(time.time()))}
    found = caused("clock", places.check(situation(with_facts(node, times))))
    assert "s fast" in found.cause
    assert by_id(places.check(situation(with_facts(right, times))))["clock"].level == "ok"
    assert "clock" not in by_id(places.check(situation(right)))


@pytest.mark.parametrize(("clock", "seconds"), [(97, -3), (98, -2), (100, 0), (110, 0), (113, 3)])
def test_difference_of_clocks(clock: int, seconds: int) -> None:
    times = {"clock": str(clock), "asked": "100", "answered": "110"}
    node = with_facts(NodeFacts("n"), times)
    assert places.skew(node) == seconds
    level = "ok" if abs(seconds) <= 2 else "warn"
    assert by_id(places.check(situation(node)))["clock"].level == level


@cache
def login(name: str, partition: str | None) -> NodeFacts:
    return facts_of(name, scheduler=name.removeprefix("login-"), partition=partition or "")


def queue(
    name: str, partition: str | None, walltime: str = "00:10:00", nodes: int = 1, **more: object
) -> dict[str, Any]:
    """Run the doctor's checks of the group `places` on a simulated login node of a cluster.

    Return finding ID -> finding, and under `all` the list of findings.
    """
    scheduler = name.removeprefix("login-")
    node = login(name, partition if scheduler == "lsf" else None)
    cluster = Cluster.model_validate({"scheduler": scheduler, "partition": partition, **more})
    about = situation(node, cluster=cluster,
                      resources={"walltime": walltime, "nodes": nodes})
    return {"all": places.check(about), **by_id(places.check(about))}


def test_time_limit_of_slurm() -> None:
    found = queue("login-slurm", "batch", "48:00:00")
    assert {found["partition"].level, found["time-limit"].level} == {"ok"}
    found = queue("login-slurm", "batch", "48:00:01")["all"]
    cause = "limit of batch: 48:00:00, the recipe's walltime: 48:00:01"
    assert caused("time-limit", found, "fail").cause == cause
    found = queue("login-slurm", "batch", "48:00:01", qos="long")["all"]
    assert caused("time-limit", found, "warn")
    assert caused("time-limit", queue("login-slurm", None)["all"], "fail")  # debug is the default
    assert "time-limit" not in queue("login-slurm", "old", "99:00:00")  # unlimited


def test_partition_of_slurm() -> None:
    assert "debug, batch, old" in caused(
        "partition", queue("login-slurm", "btach")["all"], "fail").cause
    assert caused("partition", queue("login-slurm", "debug", "00:01:00", nodes=3)["all"], "fail")
    assert caused("partition", queue("login-slurm", "batch", nodes=129)["all"], "fail")
    assert caused("partition", queue("login-slurm", "old")["all"], "warn").cause == "old: DRAIN"


def test_queue_of_pbs() -> None:
    assert caused("time-limit", queue("login-pbs", "workq")["all"], "fail")
    assert caused("partition", queue("login-pbs", "workq", nodes=2)["all"], "fail")
    assert caused("partition", queue("login-pbs", "closed")["all"], "warn")
    assert caused("partition", queue("login-pbs", "none")["all"], "fail")
    assert queue("login-pbs", None).keys() == {"all"}  # the default queue is unknown


def test_queue_of_lsf() -> None:
    assert caused("time-limit", queue("login-lsf", "normal")["all"], "fail")
    found = queue("login-lsf", "normal", "00:05:00")
    assert found.keys() == {"all", "partition", "time-limit"}
    assert {found["partition"].level, found["time-limit"].level} == {"ok"}
    assert places.check(situation(NodeFacts("n"), cluster=Cluster())) == []


@pytest.mark.parametrize(("text", "seconds"), [
    ("UNLIMITED", None), ("1-00:00:00", 86400), ("02:30:00", 9000), ("05:00", 300),
    ("86400", 86400), ("", None), ("soon", None),
])
def test_durations(text: str, seconds: int | None) -> None:
    assert queues.duration(text) == seconds
