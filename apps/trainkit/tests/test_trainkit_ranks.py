"""Tests of rank and world size from each launcher, and of the address for connections."""

import os

import pytest
from launchers import HOROVODRUN, MPICH, OPEN_MPI, SLURM, TORCHRUN

from trainkit import ranks
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks
from trainkit.testing.refusals import refused


@pytest.mark.parametrize(("environment", "expected"), [
    ({}, Ranks()),
    (SLURM, Ranks("Slurm", 5, 6, 1, 2)),
    (OPEN_MPI, Ranks("Open MPI", 1, 4, 1, 2)),
    (TORCHRUN, Ranks("torchrun", 3, 4, 1, 2)),
    (HOROVODRUN, Ranks("horovodrun", 0, 2, 0, 2)),
    (MPICH, Ranks("MPICH", 2, 3, 2, 3)),
    # the innermost launcher has started this process
    (SLURM | OPEN_MPI, Ranks("Open MPI", 1, 4, 1, 2)),
    (SLURM | TORCHRUN, Ranks("torchrun", 3, 4, 1, 2)),
    # srun --mpi=pmi2 sets MPICH's variables without the local ones
    (SLURM | {"PMI_RANK": "5", "PMI_SIZE": "6"}, Ranks("Slurm", 5, 6, 1, 2)),
    # an mpiexec that sets none either, inside a task of Slurm, which is not this rank
    (SLURM | {"PMI_RANK": "2", "PMI_SIZE": "3"}, Ranks("MPICH", 2, 3, 0, 1)),
    (
        {"PMI_RANK": "2", "PMI_SIZE": "3", "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "1"},
        Ranks("Cray MPICH", 2, 3, 0, 1),
    ),
    (
        {"JSM_NAMESPACE_RANK": "7", "JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_LOCAL_RANK": "1",
         "JSM_NAMESPACE_LOCAL_SIZE": "6"},
        Ranks("jsrun", 7, 12, 1, 6),
    ),
    # one task of a Slurm job that has not been told its place by srun
    ({"SLURM_JOB_ID": "77", "SLURM_NTASKS": "6"}, Ranks()),
])
def test_each_launcher_is_understood(environment: dict[str, str], expected: Ranks) -> None:
    assert ranks.detect(environment) == expected


def test_the_largest_machines_have_each_rank_once() -> None:
    nodes, each = 2048, 8
    found = [
        ranks.detect({
            "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(nodes * each),
            "SLURM_LOCALID": str(rank % each), "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})",
        })
        for rank in range(nodes * each)
    ]
    assert found == [Ranks("Slurm", rank, 16384, rank % 8, 8) for rank in range(16384)]


@pytest.mark.parametrize(("wrong", "fault"), [
    ({"RANK": "x", "WORLD_SIZE": "4"}, "torchrun are not numbers: RANK='x'"),
    ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "-1"}, "LOCAL_RANK='-1'"),
    ({"RANK": "1.0", "WORLD_SIZE": "4"}, "RANK='1.0'"),
    ({"RANK": "1_0", "WORLD_SIZE": "40"}, "RANK='1_0'"),
    ({"RANK": " 1", "WORLD_SIZE": "4"}, "RANK=' 1'"),
    ({"RANK": "1", "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE='9999"),
    ({"RANK": "٣", "WORLD_SIZE": "4"}, "not numbers"),
    ({"RANK": "0", "WORLD_SIZE": "0"}, "RANK=0 is not a rank of WORLD_SIZE=0"),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2(x", "SLURM_LOCALID": "0"}, "Slurm are no"),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "x3"}, "'x3'"),
    ({"OMPI_COMM_WORLD_RANK": "-1", "OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI are not numbers"),
    ({"PMI_RANK": "0x1", "PMI_SIZE": "2"}, "MPICH are not numbers"),
    ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 is not a rank of WORLD_SIZE=4"),
])
def test_nonsense_is_named(wrong: dict[str, str], fault: str) -> None:
    with pytest.raises(ArgumentError, match=fault):
        ranks.detect(wrong)


@pytest.mark.parametrize("empty", [
    {"RANK": "", "WORLD_SIZE": ""}, {"SLURM_PROCID": "", "SLURM_STEP_NUM_TASKS": "4"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": ""},
])
def test_an_empty_variable_is_one_that_is_not_set(empty: dict[str, str]) -> None:
    assert ranks.detect(empty) == Ranks()
    assert ranks.detect(OPEN_MPI | {"RANK": "", "WORLD_SIZE": ""}) == ranks.detect(OPEN_MPI)


HERE = Ranks("Slurm", 0, 2, 0, 2)


@pytest.mark.parametrize("port", ["", None])
@pytest.mark.parametrize("address", ["", None])
def test_an_empty_address_and_port_are_not_set(port: str | None, address: str | None) -> None:
    given = {"MASTER_ADDR": address, "MASTER_PORT": port, "SLURM_JOB_ID": "7"}
    found = ranks.rendezvous(HERE, {name: text for name, text in given.items() if text is not None})
    assert found == ranks.rendezvous(HERE, {"SLURM_JOB_ID": "7"})


@pytest.mark.parametrize("port", [
    "tcp://10.0.0.1:29500", "x", "0", "-1", "65536", "99999999", "29500 ", "2.5", "0x7", "٣", "1_0",
])
def test_a_port_that_is_none_is_named(port: str) -> None:
    with refused(ArgumentError, "launcher-invalid", f"MASTER_PORT={port!r} "):
        ranks.rendezvous(HERE, {"MASTER_PORT": port})


@pytest.mark.parametrize("address", [
    "tcp://n1", "n1:29500", "n1 n2", " ", "n1/x", "[::1]", "n1,n2", "$(id)", "n\n1",
])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with refused(ArgumentError, "launcher-invalid", f"MASTER_ADDR={address!r} "):
        ranks.rendezvous(HERE, {"MASTER_ADDR": address, "MASTER_PORT": "29500"})


@pytest.mark.parametrize("address", ["n1", "n1.example.org", "10.0.0.1", "::1", "fe80::1%eth0"])
def test_names_and_addresses_are_taken(address: str) -> None:
    given = {"MASTER_ADDR": address, "MASTER_PORT": "29500"}
    assert ranks.rendezvous(HERE, given) == (address, 29500)


def test_a_job_may_have_any_name() -> None:
    assert ranks.rendezvous(HERE, {"PMI_KVSNAME": "\udce9"})[0] == "127.0.0.1"


def test_ranks_of_one_node_meet_on_the_loopback_device_and_jobs_do_not_meet() -> None:
    here = Ranks("Open MPI", 0, 2, 0, 2)
    first = ranks.rendezvous(here, {"PMIX_NAMESPACE": "1"})
    assert first == ranks.rendezvous(here, {"PMIX_NAMESPACE": "1"})
    assert first[0] == "127.0.0.1"
    assert first != ranks.rendezvous(here, {"PMIX_NAMESPACE": "2"})


def test_ranks_of_several_nodes_need_an_address() -> None:
    apart = Ranks("Slurm", 5, 6, 1, 2)
    given = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert ranks.rendezvous(apart, given) == ("n1", 29500)
    with refused(ArgumentError, "launcher-invalid", "MASTER_ADDR"):
        ranks.rendezvous(apart, {})


def test_every_launcher_has_ways_out() -> None:
    assert ranks.WAYS_OUT.keys() == ranks.LAUNCHERS.keys()


def test_where_sizes_agree_or_nobody_tells_one_nothing_is_refused() -> None:
    ranks.check_size(Ranks("MPICH", 0, 2), 2, "Horovod")
    ranks.check_size(Ranks(), 2, "Horovod")  # by a launcher that only Horovod knows


@pytest.mark.parametrize(
    ("planned", "size", "each"), [(None, 3, 1), (8, 8, 1), (8, 4, 2), (6, 1, 6)]
)
def test_fewer_ranks_share_the_work(planned: int | None, size: int, each: int) -> None:
    assert ranks.share(planned, size) == each


def test_work_that_cannot_be_shared_names_a_number_of_ranks_that_can() -> None:
    with refused(ArgumentError, "ranks-uneven", "5 ranks", " 8 ", "start 4"):
        ranks.share(8, 5)


@pytest.mark.parametrize(("given", "kept"), [(None, "1"), ("0", "0")])
def test_open_mpi_yields_its_core_where_the_user_says_nothing_else(
    given: str | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "OMPI_MCA_mpi_yield_when_idle"
    monkeypatch.setenv(name, given or "")  # so that it is put back in either case
    if given is None:
        monkeypatch.delenv(name)
    ranks.yield_when_idle()
    assert os.environ[name] == kept
