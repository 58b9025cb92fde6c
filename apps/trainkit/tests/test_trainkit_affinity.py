from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkit import affinity
from trainkit.ranks import Ranks


def two_sockets(folder: Path) -> Path:
    """Write a folder that describes two sockets of four cores, as Linux does; return the folder.

    Each core has two hardware threads.
    """
    for node, cpus in enumerate(("0-3,8-11", "4-7,12-15")):
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
    for cpu in range(16):
        topology = folder / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    return folder


def test_cores_are_listed_socket_by_socket_with_their_hardware_threads(tmp_path: Path) -> None:
    found = affinity.cores(range(16), two_sockets(tmp_path))
    assert found == [[n, n + 8] for n in range(8)]


def test_two_ranks_get_a_socket_each(tmp_path: Path) -> None:
    found = affinity.cores(range(16), two_sockets(tmp_path))
    assert affinity.share(found, 0, 2) == [[0, 8], [1, 9], [2, 10], [3, 11]]
    assert affinity.share(found, 1, 2) == [[4, 12], [5, 13], [6, 14], [7, 15]]


def test_cores_that_the_job_may_not_use_are_left_out(tmp_path: Path) -> None:
    found = affinity.cores([2, 3, 4, 5, 10], two_sockets(tmp_path))
    assert found == [[2, 10], [3], [4], [5]]


def test_a_machine_that_describes_nothing_has_cores_of_one_cpu(tmp_path: Path) -> None:
    assert affinity.cores([3, 1], tmp_path) == [[1], [3]]


@given(st.integers(1, 64), st.integers(1, 16))
def test_shares_are_equal_and_apart(count: int, ranks: int) -> None:
    whole = [[n] for n in range(count)]
    shares = [affinity.share(whole, rank, ranks) for rank in range(ranks)]
    assert {len(share) for share in shares} == {count // ranks}
    together = [cpu for share in shares for core in share for cpu in core]
    assert len(together) == len(set(together))


@pytest.mark.parametrize(
    ("launcher", "environment", "binds"),
    [
        ("torchrun", {}, False),
        ("horovodrun", {}, False),
        ("Open MPI", {affinity.BINDING: "none"}, False),
        ("Open MPI", {affinity.BINDING: "core"}, True),
        ("Open MPI", {}, True),
        ("Slurm", {}, True),
    ],
)
def test_a_launcher_that_binds_is_left_alone(
    launcher: str, environment: dict[str, str], binds: bool
) -> None:
    assert affinity.launcher_binds(Ranks(launcher, 0, 2, 0, 2), environment) is binds


class Cores:
    """A machine with 16 hardware threads on two sockets; the process may use only `allowed`."""

    def __init__(self, system: Path, allowed: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed, self.bound, cores = allowed, [], affinity.cores
        monkeypatch.setattr(affinity, "cores", lambda cpus: cores(cpus, system))
        monkeypatch.setattr(os, "cpu_count", lambda: 16)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(self.allowed))
        monkeypatch.setattr(os, "sched_setaffinity", self.bind)

    def bind(self, pid: int, cpus: list[int]) -> None:
        self.bound.append(sorted(cpus))


@pytest.mark.parametrize(("ranks", "allowed", "cpus"), [
    (Ranks("torchrun", 5, 8, 1, 2), set(range(16)), [4, 5, 6, 7, 12, 13, 14, 15]),
    (Ranks("torchrun", 0, 2, 0, 2), {1, 2, 3, 4, 9, 12}, [1, 2, 9]),
    (Ranks("torchrun", 1, 2, 1, 2), {1, 2, 3, 4, 9, 12}, [3, 4, 12]),
    (Ranks("horovodrun", 3, 4, 3, 4), {0, 1, 2, 3, 4}, [3]),  # one is left over
])
def test_a_rank_is_bound_to_its_share_of_what_the_run_may_use(
    ranks: Ranks, allowed: set[int], cpus: list[int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Cores(two_sockets(tmp_path), allowed, monkeypatch)
    cores = {cpu % 8 for cpu in cpus}
    assert affinity.bind(ranks, {}) == len(cores)
    assert node.bound == [cpus]


@pytest.mark.parametrize("ranks", [
    Ranks(), Ranks("torchrun", 3, 4, 0, 1), Ranks("Slurm", 0, 2, 0, 2),
    Ranks("torchrun", 0, 9, 0, 9),  # more than cores
])
def test_a_rank_that_needs_no_share_or_can_have_none_is_not_bound(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Cores(two_sockets(tmp_path), set(range(16)), monkeypatch)
    assert affinity.bind(ranks, {}) is None
    assert node.bound == []


def test_sockets_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for node, cpu in ((10, 0), (2, 1)):  # and as texts the other way round
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(f"{cpu}\n")
    assert affinity.cores([0, 1], tmp_path) == [[1], [0]]


BIND = """
import os
from trainkit import affinity, ranks
affinity.bind(ranks.detect())
print(sorted(os.sched_getaffinity(0)))
"""


@pytest.mark.slow
def test_a_rank_of_torchrun_binds_itself_and_a_single_process_does_not() -> None:
    whole = sorted(os.sched_getaffinity(0))
    share = affinity.share(affinity.cores(whole), 1, 2)
    wanted = [cpu for core in share for cpu in core] or whole
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for more, expected in ((variables, sorted(wanted)), ({}, whole)):
        done = subprocess.run(
            [sys.executable, "-c", BIND], env={**os.environ, **more}, capture_output=True,
            text=True, check=True,
        )
        assert done.stdout.strip() == str(expected)
