"""Tests of the start of ranks: number of ranks, devices, threads, and environment.json."""

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from launchers import MPICH, OPEN_MPI, SLURM, TORCHRUN

from trainkit import provenance
from trainkit.exits import ArgumentError
from trainkit.meters import Gpu
from trainkit.ranks import Ranks
from trainkit.testing.refusals import refused
from trainkit.torch import start as module
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy


def test_ranks_that_would_train_each_on_their_own_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with refused(ArgumentError, "ranks-unconnected", "--strategy ddp"):
        start("single")


@pytest.mark.parametrize(("environment", "said"), [
    (MPICH, ["MPICH started 3 ranks, Horovod sees 1", "--strategy ddp", "Open MPI on the host",
             "srun --mpi=pmix"]),
    (SLURM, ["Slurm started 6 ranks, Horovod sees 1", "srun --mpi=pmix", "--strategy ddp",
             "inside the job"]),
    (TORCHRUN, ["torchrun started 4 ranks, Horovod sees 1", "--strategy ddp", "mpirun",
                "horovodrun"]),
    (OPEN_MPI, ["Open MPI started 4 ranks, Horovod sees 1", "--strategy ddp",
                "the images have 4.1"]),
])
def test_ranks_that_do_not_see_each_other_are_refused_with_the_ways_out(
    environment: dict[str, str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher starts several ranks, but Horovod finds only one: the error lists remedies.

    This happens if Horovod's MPI does not support the launcher.
    """
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    lonely = ModuleType("horovod.torch")
    lonely.Compression = SimpleNamespace(none=None)
    lonely.init = lambda: None
    lonely.rank = lonely.local_rank = lambda: 0
    lonely.size = lonely.local_size = lambda: 1
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    monkeypatch.setitem(sys.modules, "horovod.torch", lonely)
    monkeypatch.setattr(sys.modules["horovod"], "torch", lonely, raising=False)
    monkeypatch.setattr(module, "bind", lambda ranks: None)
    with pytest.raises(ArgumentError) as caught:
        start("horovod", device="cpu")
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(("gpus", "wanted", "local_rank", "found"), [
    (4, "auto", 0, "cuda:0"), (4, "auto", 3, "cuda:3"), (4, "gpu", 2, "cuda:2"),
    (1, "auto", 3, "cuda:0"),  # of a launcher that shows each rank its own
    (4, "cpu", 3, "cpu"), (0, "auto", 3, "cpu"),
])
def test_each_rank_of_a_node_has_a_gpu_of_its_own(
    gpus: int, wanted: str, local_rank: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert str(module.choose(wanted, local_rank)) == found
    assert chosen == ([int(found[-1])] if "cuda" in found else [])


@pytest.mark.parametrize("name", ["ddp", "horovod"])
def test_a_rank_begins_on_the_device_of_its_place_on_the_node(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks("Slurm", 3, 4, 1, 2)
    begun: list[tuple[object, ...]] = []
    monkeypatch.setattr(module, "detect", lambda: ranks)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    for strategy in ("Ddp", "Horovod"):
        monkeypatch.setattr(module, strategy, lambda *given: begun.append(given))
    monkeypatch.setattr(module, "bind", lambda ranks: begun.append(("bound",)))
    start(name, backend="gloo", compression="fp16")
    backend = ["gloo"] if name == "ddp" else []
    assert begun == [(ranks, torch.device("cuda", 1), *backend, "fp16")]
    start(name, device="cpu")
    assert begun[1] == ("bound",)
    assert begun[2][1] == torch.device("cpu")


@pytest.mark.parametrize(("cores", "variable", "threads"), [
    (3, None, [3]), (None, None, []), (3, "7", []),
])
def test_a_bound_rank_computes_with_as_many_threads_as_it_has_cores(
    cores: int | None, variable: str | None, threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable or "")
    if variable is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    asked: list[int] = []
    monkeypatch.setattr(module.affinity, "bind", lambda ranks: cores)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    module.bind(Ranks("torchrun", 1, 2, 1, 2))
    assert asked == threads


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with refused(ArgumentError, "gpu-unavailable", "local rank 0"):
        start("single", device="gpu")


THREADS = """
import torch
from trainkit import affinity, ranks
from trainkit.torch.start import bind
affinity.cores = lambda allowed: [[0, 1], [0, 1], [0, 1], [0, 1]]  # four cores of two threads
bind(ranks.detect())
print(torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "threads"), [(None, "2"), ("1", "1")])
def test_a_rank_computes_with_its_share_of_the_cores_unless_told_otherwise(
    variable: str | None, threads: str
) -> None:
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | variables
    if variable is not None:
        environment["OMP_NUM_THREADS"] = variable
    done = subprocess.run(
        [sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True,
        check=True,
    )
    assert done.stdout.strip() == threads


def test_environment_names_the_gpu_and_what_drives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`environment.json` has the name and memory of the GPU, and the versions of its libraries.

    The test needs no GPU: it replaces the functions of PyTorch that describe a GPU.
    """
    card = SimpleNamespace(name="NVIDIA H100", total_memory=85_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    facts = provenance.environment([], TorchStrategy(device=torch.device("cuda", 0)))
    assert facts["gpu"] == {
        "name": "NVIDIA H100", "memory_bytes": 85_000_000_000, "runtime": "CUDA 13.0",
        "cudnn": 91002, "nccl": "2.27.3",
    }
    assert provenance.environment([], TorchStrategy())["gpu"] is None


def test_the_gpu_of_a_rank_has_its_address_where_pytorch_reports_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = SimpleNamespace(name="a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    rank = TorchStrategy(device=torch.device("cuda", 2))
    assert rank.gpu() == Gpu(2)
    vars(card).update(pci_domain_id=1, pci_bus_id=0xAF, pci_device_id=0)
    assert rank.gpu() == Gpu(2, "00000001:af:00.0")
    assert TorchStrategy().gpu() is None
