"""Test what is measured in a short run: its rate, and the time of its steps."""

from __future__ import annotations

import pytest

from samples import CARD
from trimaran.tune import trial
from trimaran.verdict.metrics import Event

METRIC = CARD.metrics["throughput"].model_copy(update={"factor": 2.0})


def events(*rates: float | str, every: int = 10, ms: int = 500) -> list[Event]:
    """Return a log of the throughputs `rates`.

    Successive events are `every` steps and `ms` milliseconds apart.
    """
    return [Event(1000 + number * ms, "throughput", rate, {"step": number * every})
            for number, rate in enumerate(rates, 1)]


def test_the_rate_is_the_median_after_the_warm_up() -> None:
    log = events(1.0, 2.0, 10.0, 50.0, 11.0, 12.0, 13.0, 9.0)  # the warm-up has 20 of 80 steps
    assert trial.rate(log, METRIC) == 2 * 11.5


def test_a_rate_that_is_no_number_does_not_count() -> None:
    assert trial.rate(events(1.0, 10.0, "fast", 12.0), METRIC) == 2 * 11.0


def test_without_rates_there_is_none() -> None:
    assert trial.rate([], METRIC) is None
    assert trial.seconds_per_step([], METRIC) is None
    assert trial.seconds_per_step(events(1.0), METRIC) is None


def test_the_time_of_a_step_comes_from_the_times_of_the_log() -> None:
    log = events(*[1.0] * 8)
    assert trial.seconds_per_step(log, METRIC) == pytest.approx(0.05)
    late = [Event(log[-1].time_ms + 60_000, "throughput", 1.0, {"step": 90})]
    assert trial.seconds_per_step([*log, *late], METRIC) == pytest.approx(0.05)


@pytest.mark.parametrize(("steps", "every"), [(8, 1), (120, 10), (5, 1)])
def test_a_trial_ends_soon_without_evaluation_and_logs_about_twelve_times(
    steps: int, every: int
) -> None:
    assert trial.short(steps) == {"max-steps": steps, "log-every": every, "eval-every": 0}
