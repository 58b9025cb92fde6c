"""Test whether differences count as noise: worked examples, simulations, unclear cases."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import median

import pytest

from comparable import noise
from trimaran.compare import noise as module
from trimaran.compare.noise import (
    CONFIDENCE,
    LEAST,
    NONE,
    ONE_NEW,
    STRETCHES,
    WELCH,
    between,
    stretches,
)


def test_welch_as_worked_out_by_hand() -> None:
    """Means 2 and 6, variances 1 and 4, three runs each.

    Standard error sqrt(1/3 + 4/3) = 1.29099; degrees of freedom (5/3)^2 / (1/18 + 16/18)
    = 2.9412; t(0.975, 2.9412) = 3.2199; so 4 -/+ 4.157.
    """
    found = between([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    assert (found.value, found.method, found.outcome) == (4.0, WELCH, "within noise")
    assert found.low == pytest.approx(4 - 4.157, abs=5e-3)
    assert found.high == pytest.approx(4 + 4.157, abs=5e-3)
    assert between([1.0, 2.0, 3.0], [14.0, 16.0, 18.0]).outcome == "more than noise"


def test_one_run_against_several_is_a_prediction() -> None:
    """One run is compared with the prediction interval of three others.

    Half of its width by hand: t(0.975, 2) = 4.303, times the standard deviation 0.1559, times
    sqrt(1 + 1/3).
    """
    seeds = [90.15, 90.42, 90.15]
    found = between(seeds, [89.0])
    assert found.method == ONE_NEW
    assert found.high is not None
    assert found.high - found.value == pytest.approx(4.303 * 0.15588 * (4 / 3) ** 0.5, rel=1e-3)
    assert found.outcome == "more than noise"
    assert between([89.0], seeds) == found._replace(
        value=-found.value, low=-found.high, high=-(found.low or 0)
    )


@pytest.mark.parametrize("few", [None, ([1.0] * (LEAST - 1), [2.0] * 100)])
def test_one_run_each_with_one_value_tells_nothing(few: tuple[list[float], ...] | None) -> None:
    found = between([90.0], [95.0], few)  # type: ignore[arg-type]
    assert (found.outcome, found.method, found.low) == ("not known", NONE, None)
    assert between([90.0], [90.0]).outcome == "no difference"


@pytest.mark.parametrize(("second", "outcome"), [(90.0, "no difference"), (91.0, "not known")])
def test_repeats_without_any_spread_tell_of_no_noise(second: float, outcome: str) -> None:
    assert between([90.0, 90.0], [second, second]).outcome == outcome
    assert between([90.0, 90.0], [second]).outcome == outcome


def compared(first: list[float], second: list[float]) -> str:
    return between([median(first)], [median(second)], (first, second)).outcome


def test_a_difference_far_beyond_the_windows_is_seen_and_limited_to_these_runs() -> None:
    found = compared(noise(1, 1000, memory=0.5), noise(2, 1050, memory=0.5))
    assert found == "more than noise within the runs"


def rate(judge: Callable[[int], str], trials: int = 400) -> float:
    """Return the fraction of trials in which equal runs are judged as different."""
    return sum("more" in judge(trial) for trial in range(trials)) / trials


def test_equal_runs_are_told_apart_about_as_rarely_as_said() -> None:
    """Equal runs are rarely judged as different, although their readings are autocorrelated (0.6).

    The variance of the mean is (1 + 0.6) / (1 - 0.6) = 4 times that of independent readings.
    A test that assumes independence would find a difference in P(abs(z) > 1.96 / 2) = 0.33.
    """
    def judge(trial: int) -> str:
        first, second = (noise(2 * trial + one, 0, memory=0.6, count=400) for one in (0, 1))
        return compared(first, second)

    assert rate(judge) < 2.5 * (1 - CONFIDENCE)


def test_equal_groups_are_told_apart_as_rarely_as_said() -> None:
    def judge(trial: int) -> str:
        return between(
            noise(2 * trial, 0, scale=1, count=3), noise(2 * trial + 1, 0, scale=2, count=3)
        ).outcome

    assert rate(judge, 1000) < 1.5 * (1 - CONFIDENCE)


def test_the_stretches_cover_all_windows_once() -> None:
    assert stretches([float(number) for number in range(25)]) == [2.0, 7.0, 12.0, 17.0, 22.0]
    assert len(stretches([1.0] * 103)) == 10
    assert between([1.0], [1.0], ([1.0] * 30, [1.0] * 30)).method == STRETCHES


def critical(df: float) -> float:
    """Return t(0.975, df) by Simpson's rule on Student's density, and bisection."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def inside(t: float) -> float:
        step = t / 400
        heights = [(1 + (step * at) ** 2 / df) ** (-(df + 1) / 2) for at in range(401)]
        inner = 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
        return scale * (heights[0] + inner + heights[-1]) * step / 3

    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.475 else (low, middle)
    return high


def moments(values: list[float]) -> tuple[float, float]:
    """Return the mean and the sample variance (divisor n - 1)."""
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1)


@pytest.mark.parametrize("seed", range(6))
def test_intervals_are_those_of_the_formulas_for_groups_of_any_size(seed: int) -> None:
    source = random.Random(seed)  # noqa: S311 - no secret
    sizes = source.randint(2, 7), source.randint(2, 7)
    one, two = ([source.gauss(10 * seed, 1 + 3 * side) for _ in range(size)]
                for side, size in enumerate(sizes))
    (mean, variance), (other, its) = moments(one), moments(two)
    a, b = variance / sizes[0], its / sizes[1]
    df = (a + b) ** 2 / (a**2 / (sizes[0] - 1) + b**2 / (sizes[1] - 1))
    half, found = critical(df) * math.sqrt(a + b), between(one, two)
    assert (found.value, found.low, found.high) == (
        pytest.approx(other - mean), pytest.approx(other - mean - half, abs=1e-4),
        pytest.approx(other - mean + half, abs=1e-4),
    )
    assert found.outcome == ("more than noise" if abs(other - mean) > half else "within noise")
    new = critical(sizes[0] - 1) * math.sqrt(variance * (1 + 1 / sizes[0]))
    found = between(one, [mean + 1.5 * new])
    assert (found.value, found.low) == (
        pytest.approx(1.5 * new), pytest.approx(0.5 * new, abs=1e-4)
    )
    assert (found.outcome, found.method) == ("more than noise", ONE_NEW)


def test_less_is_as_different_as_more_and_the_end_of_the_interval_is_within(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "quantile", lambda p, df: 1.0)  # variances 2/2 and 0: half is 1
    for way in (1.0, -1.0):
        assert between([-1.0, 1.0], [way, way]).outcome == "within noise"
        assert between([-1.0, 1.0], [1.001 * way] * 2).outcome == "more than noise"


def test_a_difference_is_of_means_and_a_stretch_has_a_median() -> None:
    """Two sets of runs are compared by the means of their values.

    Within a run, the readings are divided into groups of successive readings (stretches), and each
    group is replaced by its median. The values here are skewed, so that means and medians differ.
    """
    assert between([0.0, 0.0, 9.0], [1.0, 1.0, 1.0]).value == pytest.approx(1 - 3)
    windows = [1.0, 1.0, 1.0, 100.0, 50.0, 2.0, 2.0, 2.0, 3.0] * 4  # 36: six stretches of six
    cut = [windows[6 * place : 6 * place + 6] for place in range(6)]
    assert stretches(windows) == [(sorted(part)[2] + sorted(part)[3]) / 2 for part in cut]


@pytest.mark.parametrize(("windows", "method"), [((19, 400), NONE), ((20, 20), STRETCHES)])
def test_twenty_windows_of_each_are_enough(windows: tuple[int, int], method: str) -> None:
    one, two = ([float(at % 7) for at in range(count)] for count in windows)
    assert between([median(one)], [median(two)], (one, two)).method == method
