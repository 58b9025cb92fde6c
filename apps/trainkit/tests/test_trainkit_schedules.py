"""Tests of learning-rate schedules: they have the properties that their papers state."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkit import schedules

rates = st.floats(1e-6, 100.0)
counts = st.integers(1, 100_000)
steps = st.integers(0, 200_000)


@given(rates, counts, st.integers(1, 64))
def test_linear_scaling_multiplies_the_rate_as_the_batch(lr: float, batch: int, k: int) -> None:
    assert schedules.linear_scaling(lr, k * batch, batch) == pytest.approx(k * lr)


def test_linear_scaling_of_the_paper() -> None:
    # Goyal et al., section 5.1: 0.1 for 256 images, 3.2 for 8192.
    assert schedules.linear_scaling(0.1, 8192, 256) == pytest.approx(3.2)


@pytest.mark.parametrize(("batch", "base"), [(0, 256), (256, 0), (-1, 1)])
def test_linear_scaling_refuses_batches_that_are_none(batch: int, base: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        schedules.linear_scaling(0.1, batch, base)


@given(steps, counts, rates)
def test_warmup_rises_to_the_peak_and_stays(step: int, length: int, peak: float) -> None:
    now, after = (schedules.warmup(s, length, peak) for s in (step, step + 1))
    assert 0 <= now <= after <= peak
    assert schedules.warmup(length, length, peak) == peak


def test_no_warmup_is_the_peak_at_once() -> None:
    assert schedules.warmup(0, 0, 0.5) == 0.5


def test_warmup_is_linear_from_its_start() -> None:
    assert [schedules.warmup(s, 4, 1.0, start=0.2) for s in range(5)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1.0]
    )


@given(steps, counts, rates)
def test_constant_warmup_has_two_rates(step: int, length: int, peak: float) -> None:
    assert schedules.constant_warmup(step, length, peak, peak / 8) == (
        peak / 8 if step < length else peak
    )


@pytest.mark.parametrize("rule", [schedules.cosine, schedules.polynomial])
@given(step=steps, length=counts, peak=rates)
def test_decay_falls_from_peak_to_end_and_stays(rule, step: int, length: int, peak: float) -> None:
    end = peak / 10
    now, after = (rule(s, length, peak, end) for s in (step, step + 1))
    assert end * (1 - 1e-9) <= after <= now <= peak * (1 + 1e-9)
    assert rule(0, length, peak, end) == pytest.approx(peak)
    assert rule(length, length, peak, end) == pytest.approx(end)
    assert rule(length + step, length, peak, end) == pytest.approx(end)


@given(counts, rates)
def test_cosine_is_symmetric_about_its_middle(length: int, peak: float) -> None:
    for step in (0, length // 3, length // 2):
        pair = schedules.cosine(step, length, peak) + schedules.cosine(length - step, length, peak)
        assert pair == pytest.approx(peak)


@given(steps, counts, rates)
def test_polynomial_of_power_one_is_linear(step: int, length: int, peak: float) -> None:
    linear = peak * max(0.0, 1 - step / length)
    assert schedules.polynomial(step, length, peak, power=1.0) == pytest.approx(linear, abs=1e-12)


def test_values_known_by_hand() -> None:
    assert schedules.cosine(1, 4, 2.0) == pytest.approx(1 + math.sqrt(0.5))
    assert schedules.polynomial(5, 10, 4.0) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", [schedules.cosine, schedules.polynomial])
def test_a_decay_of_no_steps_is_over(rule) -> None:
    assert rule(0, 0, 1.0, 0.1) == pytest.approx(0.1)


@given(steps, st.lists(counts, min_size=1, max_size=4, unique=True).map(sorted), rates)
def test_step_decay_takes_a_tenth_at_each_milestone(
    step: int, milestones: list[int], peak: float
) -> None:
    passed = len([m for m in milestones if m <= step])
    assert schedules.step_decay(step, milestones, peak) == pytest.approx(peak * 0.1**passed)


def test_step_decay_of_the_paper() -> None:
    at = [schedules.step_decay(epoch, (30, 60, 80), 3.2) for epoch in (0, 29, 30, 60, 80, 89)]
    assert at == pytest.approx([3.2, 3.2, 0.32, 0.032, 0.0032, 0.0032])


@given(steps, st.integers(2, 5000), st.data(), rates)
def test_each_cycle_warms_up_and_decays_again(step: int, cycle: int, data, peak: float) -> None:
    warm = data.draw(st.integers(0, cycle - 1))
    rate = schedules.cyclic_polynomial(step, cycle, warm, peak)
    assert 0 <= rate <= peak * (1 + 1e-9)
    assert rate == schedules.cyclic_polynomial(step + cycle, cycle, warm, peak)
    assert schedules.cyclic_polynomial(warm, cycle, warm, peak) == pytest.approx(peak)


def test_a_cycle_goes_from_its_start_to_its_peak_and_to_its_end() -> None:
    """In each cycle, two steps rise from 1 to 5, then four steps fall as 3 + 2 (1 - fraction)^2."""
    rates = [
        schedules.cyclic_polynomial(step, 6, 2, 5.0, start=1.0, end=3.0, power=2.0)
        for step in range(8)
    ]
    decay = [5.0, 3 + 2 * 0.75**2, 3 + 2 * 0.5**2, 3 + 2 * 0.25**2]
    assert rates == pytest.approx([1.0, 3.0, *decay, 1.0, 3.0])
    linear = [schedules.cyclic_polynomial(step, 4, 0, 4.0) for step in range(5)]
    assert linear == pytest.approx([4.0, 3.0, 2.0, 1.0, 4.0])


@pytest.mark.parametrize(("step", "wave", "power"), [
    (0, 6.0, 6.0), (1, 2 + 2 * (1 + math.sqrt(0.5)), 2 + 4 * 0.75**2), (2, 4.0, 3.0),
    (4, 2.0, 2.0), (5, 2.0, 2.0), (7, 2.0, 2.0), (8, 2.0, 2.0),
])
def test_a_decay_ends_where_it_is_to_end(step: int, wave: float, power: float) -> None:
    """Cosine and polynomial rates fall from 6 to 2 in four steps, and stay at 2."""
    assert schedules.cosine(step, 4, 6.0, 2.0) == pytest.approx(wave)
    assert schedules.polynomial(step, 4, 6.0, 2.0, 2.0) == pytest.approx(power)


def test_a_polynomial_is_quadratic_unless_told() -> None:
    assert schedules.polynomial(1, 4, 16.0) == pytest.approx(16 * 0.75**2)


def test_a_cycle_that_is_all_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match="10 steps of warm-up"):
        schedules.cyclic_polynomial(0, 10, 10, 1.0)
