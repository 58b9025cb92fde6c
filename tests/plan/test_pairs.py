"""Test the prediction of the rate of two ranks from the rate of one."""

from __future__ import annotations

import pytest

from trimaran.plan import pairs, step

FAST = 1e9
"""A bandwidth in GB/s at which an exchange takes almost no time."""

ALONE = 1 + step.VARIATION * step.expected_maximum(2)
"""Expected computing time of the slower of two ranks, relative to the mean of both ranks.

By this factor, waiting for the slower rank lengthens a step, even if the exchange of gradients
takes no time.
"""


def test_two_ranks_without_an_exchange_are_twice_as_fast() -> None:
    found = pairs.predict("resnet-imagenet", "resnet18", 16, 50.0, FAST)
    assert found == pytest.approx(100 / ALONE, rel=1e-3)


def test_a_slow_exchange_determines_the_rate() -> None:
    """A slow exchange determines the rate: ResNet-18 has 11,689,512 gradients of four bytes."""
    found = pairs.predict("resnet-imagenet", "resnet18", 16, 1e9, 0.001)
    assert found == pytest.approx(32 / (4 * 11_689_512 / 1e6), rel=1e-3)


def test_the_exchange_follows_the_computation() -> None:
    """Computation and exchange times add up, because a core cannot do both at the same time."""
    seconds = 16 / 50.0 * ALONE + 4 * 11_689_512 / 1e9
    found = pairs.predict("resnet-imagenet", "resnet18", 16, 50.0, 1.0)
    assert found == pytest.approx(32 / seconds, rel=1e-3)


def test_measured_rates_give_pairs() -> None:
    rates = {
        "resnet-imagenet/resnet18: one rank": 50.0,
        "resnet-imagenet/resnet18: one rank beside another": 40.0,
        "resnet-imagenet/resnet18: two ranks, DDP": 78.0,
        pairs.LINK: FAST,
    }
    (one,) = pairs.pairs(rates, batch=16)
    assert (one.network, one.strategy) == ("resnet-imagenet/resnet18", "DDP")
    assert one.error == pytest.approx(100 / ALONE / 78 - 1, rel=1e-3)
    assert one.beside_error == pytest.approx(80 / ALONE / 78 - 1, abs=1e-3)
