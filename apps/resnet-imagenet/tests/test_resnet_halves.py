"""Test the loss scale of a training in fp16, and one rank that does the work of two ranks.

The one rank processes the batches of the two ranks as micro-batches, one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import memory_training as memory
import pytest
import torch
from torch import Tensor

STEPS = 18
FIRST = 2.0**16
"""The initial scale of the loss, from PyTorch's documentation of GradScaler."""


class Overflowing(memory.Network):
    """A network whose gradients are infinite in the training step number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        self.calls += self.training
        if self.training and self.calls == self.at:
            logits.register_hook(lambda gradient: gradient * torch.inf)
        return logits


def test_the_scale_of_the_loss_stays_where_nothing_overflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer than 2000 steps and no overflow, the loss scale keeps its first value."""
    asked = memory.settings(tmp_path / "run", precision="fp16", base_lr=0.05)
    found = memory.part(memory.train(asked, monkeypatch), "scaler")
    assert found == {
        "scale": FIRST, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
        "_growth_tracker": STEPS,
    }


@pytest.mark.parametrize("at", [1, 5])
def test_a_step_that_overflows_is_left_out_and_halves_the_scale(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = memory.settings(tmp_path / "run", precision="fp16", base_lr=0.05)
    out = memory.train(asked, monkeypatch, network=Overflowing(at))
    found = memory.part(out, "scaler")
    assert (found["scale"], found["_growth_tracker"]) == (FIRST / 2, STEPS - at)
    weights = memory.part(out)
    assert all(torch.isfinite(weight).all() for weight in weights.values())


@pytest.mark.parametrize("more", [{}, {"accumulation": 2, "batch_size_per_rank": 2}])
def test_one_rank_in_the_place_of_two_makes_their_steps(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank that replaces two gets the same losses and weights.

    It processes two micro-batches, each with the batch statistics of one of the two ranks.
    """
    two = memory.train(memory.settings(tmp_path / "two", **more), monkeypatch, ranks=2)
    one = memory.train(memory.settings(tmp_path / "one", ranks=2, **more), monkeypatch)
    for key in ("train_loss", "learning_rate", "global_batch_size"):
        assert memory.values(one, key) == pytest.approx(memory.values(two, key), rel=1e-4)
    found, wanted = memory.part(one), memory.part(two)
    for name in ("conv.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=2e-5)
