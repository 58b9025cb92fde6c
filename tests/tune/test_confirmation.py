"""Test the confirmation of a tuning: alternating runs; is the gain more than noise?"""

from __future__ import annotations

import pytest

from trimaran.tune.confirmation import LEAST, MOST, alternate, gain


def test_the_gain_is_the_mean_ratio_with_its_t_interval() -> None:
    # log ratios 0.0953, 0.1823, 0.2624: mean 0.18001, standard deviation 0.08357; t(0.975, 2) =
    # 4.3027, so that half the interval is 0.20760.
    found = gain([(100, 110), (100, 120), (100, 130)])
    assert found.value == pytest.approx(0.19723, abs=1e-4)
    assert found.low == pytest.approx(-0.02721, abs=1e-4)
    assert found.high == pytest.approx(0.47345, abs=1e-4)
    assert not found.is_real


def test_a_drift_of_the_machine_does_not_hide_a_gain() -> None:
    pairs = [(rate, rate * factor) for rate, factor in
             ((100.0, 1.10), (80.0, 1.11), (60.0, 1.10), (40.0, 1.09))]
    assert gain(pairs).is_real


@pytest.mark.parametrize("tuned", [(104, 99, 105, 98), (95, 94, 96, 93)])
def test_no_gain_within_noise_or_below_the_recipe(tuned: tuple[float, ...]) -> None:
    assert not gain([(100.0, one) for one in tuned]).is_real


def test_every_second_pair_begins_with_the_candidate() -> None:
    order: list[str] = []

    def run(name: str, rate: float, number: int) -> float:
        order.append(f"{name}{number}")
        return rate

    pairs = alternate(lambda n: run("d", 1.0, n), lambda n: run("t", 2.0, n), lambda: False)
    assert pairs == [(1.0, 2.0)] * LEAST
    assert order[:4] == ["d1", "t1", "t2", "d2"]


def test_more_pairs_are_run_while_time_is_left() -> None:
    assert len(alternate(lambda n: 1.0, lambda n: 2.0, lambda: True)) == MOST


def test_a_failed_run_confirms_nothing() -> None:
    assert alternate(lambda n: 1.0, lambda n: None if n == 3 else 2.0, lambda: True) == []
