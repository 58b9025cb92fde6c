"""The search finds the settings with the highest made-up rate, and survives failed trials."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from refusals import refused
from trimaran.errors import Interrupted
from trimaran.tune.search import Measured, Search, Trial, load_optuna
from trimaran.tune.space import Configuration, Parameter, Space
from tunedapp import BEST, SPACE, measuring, response


def search(
    measure: Callable[[int, Configuration], Measured], trials: int = 60, seed: int = 17,
    space: Space = SPACE,
) -> Search:
    found = Search(space, measure, lambda: len(found.trials) < trials, seed)
    found.run()
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_finds_the_fastest_configuration_in_an_eighth_of_all(seed: int) -> None:
    found = search(measuring(response), trials=30, seed=seed)  # of 243
    assert found.best is not None
    assert found.best.configuration == BEST


def test_settings_that_help_only_together_are_found() -> None:
    def rate(chosen: Configuration) -> float:
        return response(chosen) * (1.5 if (chosen["ranks"], chosen["threads"]) == (4, 1) else 1.0)

    found = search(measuring(rate), trials=60)
    assert found.best is not None
    assert found.best.configuration == {**BEST, "ranks": 4, "threads": 1}


def test_the_recipe_itself_is_the_first_trial() -> None:
    found = search(measuring(response), trials=3)
    assert found.trials[0].configuration == SPACE.default
    assert [one.number for one in found.trials] == [1, 2, 3]


def test_equal_seeds_give_equal_trials() -> None:
    one, two = (search(measuring(response), trials=20) for _ in range(2))
    assert one.trials == two.trials


def test_failed_trials_do_not_end_the_search() -> None:
    def measure(number: int, chosen: Configuration) -> Measured:
        if chosen["ranks"] == 4 or chosen["precision"] == "fp32":
            return Measured(None, "app-killed: out of memory")
        return Measured(response(chosen))

    found = search(measure, trials=30)
    assert any(one.measured.failure for one in found.trials)
    assert found.best is not None
    assert found.best.configuration == BEST


def test_no_configuration_is_measured_twice_and_a_small_space_ends() -> None:
    both = Parameter("threads", 2, (2, 1)), Parameter("ranks", 1, (1, 2))
    found = search(lambda number, chosen: Measured(float(chosen["threads"] or 0)), 1000,
                   space=Space(both, {}, SPACE.tuning))
    assert len(found.trials) == 4
    assert len({tuple(one.configuration.items()) for one in found.trials}) == 4


@pytest.mark.parametrize("stop", [Interrupted("stopped"), KeyboardInterrupt()])
def test_an_interruption_leaves_the_best_so_far(stop: BaseException) -> None:
    def measure(number: int, chosen: Configuration) -> Measured:
        if number == 6:
            raise stop
        return Measured(response(chosen))

    found = search(measure)
    assert found.interrupted
    assert len(found.trials) == 5
    assert found.best is not None
    assert found.best.measured.rate == max(one.measured.rate or 0 for one in found.trials)


def trial(number: int, rate: float | None, **chosen: Any) -> Trial:
    return Trial(number, {**SPACE.default, **chosen}, Measured(rate))


def best(*trials: Trial) -> Trial | None:
    return Search(SPACE, measuring(response), lambda: False, 17, trials=list(trials)).best


def test_of_about_equal_trials_the_one_with_the_fewest_changes_is_best() -> None:
    trials = [trial(1, 90.0), trial(2, 100.0, ranks=2, threads=1), trial(3, 98.5, ranks=2),
              trial(4, None)]
    assert best(*trials) == trials[2]
    assert best(trials[0], trials[1]) == trials[1]
    assert best(trials[3]) is None


def test_without_optuna_the_error_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, *more: Any) -> Any:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with refused("package-missing", "optuna"):
        load_optuna()
