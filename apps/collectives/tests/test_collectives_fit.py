"""Tests of the fitted model: it finds known parameters, and real changes of protocol only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from collectives import fit

SIZES = [4 << step for step in range(23)]  # 4 B to 16 MiB
SEEDS = range(6)


def times(alpha: float, beta: float, seed: int | None = None) -> np.ndarray:
    """Return the times alpha + beta * size in seconds, with 5 % of noise unless `seed` is None."""
    exact = alpha + beta * np.array(SIZES)
    if seed is None:
        return exact
    return exact * (1 + 0.05 * np.random.default_rng(seed).standard_normal(len(SIZES)))


@settings(max_examples=10, deadline=None)
@given(alpha=some.floats(1e-6, 3e-4), rate=some.floats(0.5, 100))
def test_exact_times_give_their_parameters(alpha: float, rate: float) -> None:
    found = fit.fit("x", SIZES, times(alpha, 1e-9 / rate))
    assert found is not None
    [only] = found.ranges
    assert found.breaks_bytes == []
    assert only.alpha_us == pytest.approx(alpha * 1e6)
    assert only.gb_s == pytest.approx(rate)
    assert only.n_half_bytes == pytest.approx(alpha * rate * 1e9)
    assert (only.from_bytes, only.to_bytes) == (SIZES[0], SIZES[-1])
    assert only.error < 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_noisy_times_give_their_parameters_and_no_break(seed: int) -> None:
    alpha, rate = 2e-6 * 3**seed ** 0.5, 0.3 * 1.5**seed
    found = fit.fit("x", SIZES, times(alpha, 1e-9 / rate, seed))
    assert found is not None
    [only] = found.ranges
    assert only.alpha_us == pytest.approx(alpha * 1e6, rel=0.1)
    assert only.gb_s == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_protocol_is_found_at_its_size(seed: int) -> None:
    """The fit finds the change of protocol at 64 KiB, where messages begin to need a rendezvous."""
    place = SIZES.index(64 << 10)
    y = times(2e-6, 1 / 2e9, seed)
    y[place:] = times(60e-6, 1 / 5e9, seed)[place:]
    found = fit.fit("x", SIZES, y)
    assert found is not None
    assert found.breaks_bytes == [64 << 10]
    small, large = found.ranges
    assert small.to_bytes == 32 << 10
    assert small.alpha_us == pytest.approx(2, rel=0.1)
    assert large.gb_s == pytest.approx(5, rel=0.1)


def test_the_relative_errors_are_minimized() -> None:
    """Assert that alpha is the time of small messages, which absolute errors would hide."""
    y = times(1e-6, 1 / 1e9)
    y[-1] *= 1.1
    found = fit.fit("x", SIZES, y)
    assert found is not None
    assert found.ranges[0].alpha_us == pytest.approx(1, rel=0.01)


def test_a_time_that_does_not_grow_has_no_bandwidth() -> None:
    found = fit.fit("x", SIZES[:8], [2e-6 - 1e-8 * step for step in range(8)])
    assert found is not None
    assert found.ranges[0].gb_s is None
    assert found.ranges[0].n_half_bytes is None
    assert found.ranges[0].alpha_us == pytest.approx(1.965, rel=0.01)


def test_no_alpha_is_negative() -> None:
    x = np.array(SIZES[:6], dtype=float)
    alpha, beta, _ = fit.line(x, 1e-9 * x - 1e-9)
    assert alpha == 0
    assert beta > 0


def test_few_sizes_have_no_fit() -> None:
    assert fit.fit("x", SIZES[:3], [1.0, 1.0, 1.0]) is None
