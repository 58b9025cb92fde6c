"""Tests that two ranks make the same steps as one process with the whole batch.

The trainings have several networks, losses that pass through two networks, penalties on
gradients, and a network that grows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import two_networks
from thread_ranks import on_ranks
from torch import Tensor, nn

from trainkit.torch import strategy
from trainkit.torch.strategy import TorchStrategy

Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def alone() -> Weights:
    return two_networks.train(TorchStrategy())


def difference(found: Weights, expected: Weights) -> float:
    """Return the largest difference between two sets of weights.

    A different order of the sums in single precision causes about 1e-6.
    """
    assert list(found) == list(expected)
    return max(float((found[name] - expected[name]).abs().max()) for name in found)


CLOSE = {"none": 1e-5, "fp16": 1e-2}


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_ranks_of_horovod_equal_one_process(
    compression: str, alone: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = on_ranks(2, two_networks.train, monkeypatch, compression)
    assert difference(one, two) == 0
    assert difference(one, alone) < CLOSE[compression]


@pytest.mark.parametrize("compression", ["none", pytest.param("fp16", marks=pytest.mark.slow)])
def test_processes_of_ddp_equal_one_process(
    compression: str, alone: Weights, tmp_path: Path
) -> None:
    job = {"PMIX_NAMESPACE": f"{os.getpid()}-two-{compression}", "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, two_networks.__file__, "ddp", compression, tmp_path],
            env=os.environ | job | {
                "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
        )
        for rank in (0, 1)
    ]
    assert [child.wait(100) for child in children] == [0, 0]
    one, two = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in (0, 1))
    assert difference(one, two) == 0
    assert difference(one, alone) < CLOSE[compression]


def test_without_averages_the_weights_are_others(
    alone: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the ranks do not average their gradients, their weights differ.

    They differ between the two ranks, and from the weights of a training in one process. Otherwise,
    the other tests of this file would not detect that averages are missing.
    """
    one, two = on_ranks(2, lambda ranks: two_networks.train(ranks, average=False), monkeypatch)
    assert difference(one, two) > 0.01
    assert difference(one, alone) > 0.01


def test_two_networks_of_equal_names_are_under_way_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(strategy: TorchStrategy) -> list[float]:
        networks = [nn.Linear(1, 1), nn.Linear(1, 1)]
        for number, network in enumerate(networks, 1):
            model = strategy.distribute(network)
            with strategy.backward(model, last=True):
                model(torch.full((1, 1), float(number + strategy.rank))).sum().backward()
        with strategy.averaged():
            return [network.weight.grad.item() for network in networks]

    assert on_ranks(2, work, monkeypatch) == [[1.5, 2.5]] * 2


def test_waiting_for_the_others_counts_as_communication(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(strategy: TorchStrategy) -> float:
        two_networks.train(strategy)
        return strategy.communicating

    assert min(on_ranks(2, work, monkeypatch)) > 0


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_large_gradients_of_all_networks_are_means_and_no_overflow(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean is right although the sum of the two gradients exceeds 65504, the limit of fp16."""
    def work(strategy: TorchStrategy) -> list[float]:
        networks = [nn.Linear(1, 1, bias=False) for _ in range(3)]
        for number, network in enumerate(networks):
            strategy.distribute(network, overlap=False)
            image = torch.full((1, 1), 40_000.0 - 1024 * number - 2048 * strategy.rank)
            network(image).sum().backward()
        with strategy.averaged(*networks):
            return [network.weight.grad.item() for network in networks]

    means = [38_976.0, 37_952.0, 36_928.0]
    assert on_ranks(2, work, monkeypatch, compression) == [pytest.approx(means, rel=1e-3)] * 2


def test_buckets_hold_one_type_and_not_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategy, "BUCKET_BYTES", 40)
    sizes = [(4, torch.float32), (6, torch.float32), (1, torch.float32), (30, torch.float32),
             (1, torch.float64), (2, torch.float64)]
    tensors = [torch.rand(size, dtype=kind) for size, kind in sizes]
    found = list(strategy.buckets(tensors))
    assert [[len(tensor) for tensor in bucket] for bucket in found] == [[4, 6], [1], [30], [1, 2]]
    flat = strategy.flatten(found[0])
    before = [tensor.clone() for tensor in found[0]]
    strategy.unflatten(flat * 2, found[0])
    assert all(torch.equal(new, old * 2) for new, old in zip(found[0], before, strict=True))


def test_one_process_has_nothing_to_average() -> None:
    network = nn.Linear(1, 1)
    strategy = TorchStrategy()
    assert strategy.distribute(network, overlap=False) is network
    network(torch.ones(1, 1)).sum().backward()
    with strategy.averaged(network):
        assert network.weight.grad.item() == 1.0
    assert strategy.communicating == 0.0
