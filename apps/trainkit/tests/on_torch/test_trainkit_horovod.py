"""Tests of the strategy for Horovod on ranks that are threads: sums, means and gradients."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from thread_ranks import ThreadHorovod, on_ranks
from torch import Tensor, nn

from trainkit.torch.strategy import TorchStrategy

Results = list[Any]


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_are_over_all_ranks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(strategy: TorchStrategy) -> Results:
        rank = strategy.rank
        mean = torch.full((2, 2), float(rank))
        strategy.average([mean])
        return [
            strategy.sum([1.0, rank]), strategy.any(rank == 1), strategy.any(False),
            strategy.share(f"of {rank}"), strategy.gather(rank * 10), mean.tolist(),
            strategy.start_sum(torch.tensor([2.0 * rank])).result(), strategy.is_main,
        ]

    total = sum(range(size))
    for rank, found in enumerate(on_ranks(size, work, monkeypatch)):
        assert found == [
            [size, total], True, False, "of 0", [10 * n for n in range(size)],
            [[total / size] * 2] * 2, [2.0 * total], rank == 0,
        ]


def test_horovod_begins_with_an_mpi_that_yields_its_core(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "OMPI_MCA_mpi_yield_when_idle"
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)  # as a training does not find it
    found: list[str | None] = []
    monkeypatch.setattr(ThreadHorovod, "init", lambda self: found.append(os.environ.get(name)))
    on_ranks(2, lambda strategy: [], monkeypatch)
    assert found == ["1", "1"]


def test_ranks_may_share_values_of_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """`share` and `gather` work if rank 0 has a dict, such as a checkpoint, and rank 1 has None."""
    def work(strategy: TorchStrategy) -> Results:
        own = {"step": 3} if strategy.is_main else None
        return [strategy.share(own), strategy.gather(own)]

    for found in on_ranks(2, work, monkeypatch):
        assert found == [{"step": 3}, [{"step": 3}, None]]


def test_sums_of_millions_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are in double precision; single precision would round 2**24 + 1 to 2**24."""
    large = 2.0**24 + 1
    assert TorchStrategy().sum([large, 1.0]) == [large, 1.0]
    assert on_ranks(2, lambda strategy: strategy.sum([large]), monkeypatch) == [[2 * large]] * 2


def network_of(rank: int) -> nn.Module:
    network = nn.Conv2d(2, 3, 1).to(memory_format=torch.channels_last)
    with torch.no_grad():
        network.weight.fill_(1.0 + rank)
        network.bias.fill_(10.0 * rank)
    return network


def images_of(rank: int, part: int) -> Tensor:
    return torch.full((1, 2, 1, 1), 1.0 + rank + 10.001 * part)


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_gradients_of_all_parts_are_averaged_once_and_begin_from_rank_0(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(strategy: TorchStrategy) -> Results:
        network = network_of(strategy.rank)
        model = strategy.distribute(network)
        start = [p.detach().flatten().tolist() for p in network.parameters()]
        for part in (0, 1):
            with strategy.backward(model, last=part == 1):
                model(images_of(strategy.rank, part)).sum().backward()
        with strategy.averaged():
            return [start, network.weight.grad.flatten().tolist(), network.bias.grad.tolist()]

    # d/dw of the sum is the image: rank 0 has 1 and 11.001, rank 1 has 2 and 12.001.
    mean = 13.0 if compression == "fp16" else pytest.approx(13.001, abs=1e-5)
    for found in on_ranks(2, work, monkeypatch, compression):
        assert found == [[[1.0] * 6, [0.0] * 3], [mean] * 6, [2.0] * 3]


def test_waiting_for_gradients_counts_as_communication(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(strategy: TorchStrategy) -> float:
        with strategy.averaged():
            pass
        return strategy.communicating

    assert all(seconds > 0 for seconds in on_ranks(2, work, monkeypatch))
