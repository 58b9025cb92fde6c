"""Predictions of two ranks from the rate of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimaran.plan import pairs, step

FAST = 1e9
"""A bandwidth in GB/s at which an exchange takes almost no time."""

ALONE = 1 + step.VARIATION * step.expected_maximum(2)
"""Expected time of the slower of two ranks, relative to the mean."""


def test_two_ranks_without_an_exchange_are_twice_as_fast() -> None:
    found = pairs.predict("resnet-imagenet", "resnet18", 16, 50.0, FAST)
    assert found == pytest.approx(100 / ALONE, rel=1e-3)


def test_a_slow_exchange_determines_the_rate() -> None:
    """ResNet-18 has 11,689,512 parameters, whose gradients have four bytes each."""
    found = pairs.predict("resnet-imagenet", "resnet18", 16, 1e9, 0.001)
    assert found == pytest.approx(32 / (4 * 11_689_512 / 1e6), rel=1e-3)


def test_the_evidence_of_the_benchmark_gives_pairs(tmp_path: Path) -> None:
    rates = {
        "resnet-imagenet/resnet18: one rank": 50.0,
        "resnet-imagenet/resnet18: one rank beside another": 40.0,
        "resnet-imagenet/resnet18: two ranks, DDP": 78.0,
        pairs.LINK: FAST,
    }
    file = tmp_path / "x.json"
    file.write_text(json.dumps({
        "settings": {"batch": 16},
        "rates": [{"name": name, "median": value} for name, value in rates.items()],
    }))
    _, (one,) = pairs.read(file)
    assert (one.network, one.how) == ("resnet-imagenet/resnet18", "two ranks, DDP")
    assert one.error == pytest.approx(100 / ALONE / 78 - 1, rel=1e-3)
    assert one.beside_error == pytest.approx(80 / ALONE / 78 - 1, abs=1e-3)
