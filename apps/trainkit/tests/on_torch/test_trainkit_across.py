"""Tests of a differentiable mean over the ranks, compared with one process with all samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from thread_ranks import on_ranks
from torch import Tensor

from trainkit.torch.across import mean
from trainkit.torch.strategy import TorchStrategy

GIVEN = [[1.0, -2.0, 0.5], [3.0, 0.25, -1.0], [-0.5, 4.0, 2.0]]
"""The input vector of each of up to three ranks; `mean` averages the vectors over the ranks."""


def used(own: Tensor, common: Tensor, rank: int) -> Tensor:
    """Return a loss, computed from a rank's own values and from the mean over all ranks.

    Each rank uses another formula.
    """
    return ((1 + rank) * common**3 + own * common).sum()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_values_and_both_derivatives_are_those_of_all_ranks(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(strategy: TorchStrategy) -> Any:
        own = torch.tensor(GIVEN[strategy.rank], dtype=torch.float64, requires_grad=True)
        common = mean(own, strategy)
        loss = used(own, common, strategy.rank)
        (slope,) = torch.autograd.grad(loss, own, create_graph=True)
        (curve,) = torch.autograd.grad(slope.square().sum(), own)
        return common.tolist(), slope.tolist(), curve.tolist()

    given = torch.tensor(GIVEN[:size], dtype=torch.float64, requires_grad=True)
    # The sum over the ranks of what they make of the mean, differentiated by one process.
    common = given.mean(0)
    whole = sum(used(given[rank], common, rank) for rank in range(size))
    (slope,) = torch.autograd.grad(whole, given, create_graph=True)
    (curve,) = torch.autograd.grad(slope.square().sum(), given)
    found = [work(TorchStrategy())] if size == 1 else on_ranks(size, work, monkeypatch)
    for rank, (value, first, second) in enumerate(found):
        assert value == pytest.approx(common.tolist())
        assert first == pytest.approx(slope[rank].tolist())
        assert second == pytest.approx(curve[rank].tolist())


def test_what_was_given_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(strategy: TorchStrategy) -> list[float]:
        own = torch.tensor([1.0 + strategy.rank])
        mean(own, strategy)
        return own.tolist()

    assert on_ranks(2, work, monkeypatch) == [[1.0], [2.0]]
