"""Search the configurations of a recipe with Optuna, by measuring some of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trimaran import process
from trimaran.errors import Interrupted, UsageError
from trimaran.tune.space import Space, Value

PACKAGE = "optuna"

FIRST = 8
"""Number of trials after which the sampler uses their results instead of random values."""

REPEATS = 50
"""The search ends after this number of consecutive proposals without a new configuration."""

CLOSE = 0.02
"""Largest relative difference in rate at which two configurations count as equally fast.

Of equally fast configurations, the search selects the configuration with the fewest changes.
"""


@dataclass(frozen=True)
class Measured:
    """The result of one trial.

    Attributes:
        rate: the measured rate; None: the trial failed.
        failure: why the trial failed; None: it did not fail.
        seconds: duration of the trial.
        directory: run directory, relative to the folder of the tuning; None: no run was started.
    """

    rate: float | None
    failure: str | None = None
    seconds: float = 0.0
    directory: str | None = None


@dataclass(frozen=True)
class Trial:
    """One trial: a configuration, and the result of its run."""

    number: int
    configuration: dict[str, Value]
    measured: Measured


@dataclass
class Search:
    """A search, with its trials so far; the first trial runs the unchanged recipe.

    Attributes:
        space: the parameters.
        measure: function that runs a trial, given its number and its configuration, and returns
            the result.
        may_go_on: function that returns whether the time is sufficient for another trial.
        seed: seed of the sampler.
        tell: function that is called after each trial.
        interrupted: whether the user stopped the search.
    """

    space: Space
    measure: Callable[[int, dict[str, Value]], Measured]
    may_go_on: Callable[[], bool]
    seed: int
    tell: Callable[[Trial], None] = lambda trial: None
    trials: list[Trial] = field(default_factory=list)
    interrupted: bool = False

    def run(self) -> None:
        """Measure the first configurations, then a combination, then proposals of the sampler.

        The first configurations (`Space.first`) change one setting of the recipe each. The
        combination (`_combined`) has all changes that were faster than the recipe. The search ends
        when no time is left, or when the sampler proposes no new configuration.

        Raises:
            UsageError: Optuna is not installed.
        """
        optuna = load_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=FIRST)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        first = self.space.first()
        for chosen in first:
            study.enqueue_trial(chosen)
        repeats = asked = 0
        try:
            while repeats < REPEATS and (not self.trials or self.may_go_on()):
                repeats = 0 if self._step(study) else repeats + 1
                asked += 1
                if asked == len(first):
                    study.enqueue_trial(self._combined())
        except (Interrupted, KeyboardInterrupt):
            self.interrupted = True

    def _step(self, study: Any) -> bool:
        """Measure one proposal of the sampler if it is new; return whether it is new."""
        asked = study.ask()
        chosen = {one.name: asked.suggest_categorical(one.name, one.values)
                  for one in self.space.parameters}
        known = next((one for one in self.trials if one.configuration == chosen), None)
        trial = known
        if trial is None:
            number = len(self.trials) + 1
            trial = Trial(number, chosen, self.measure(number, chosen))
            self.trials.append(trial)
            self.tell(trial)
        # The sampler ignores trials that are told as failed, and would propose them again.
        study.tell(asked, trial.measured.rate or 0.0)
        return known is None

    def _combined(self) -> dict[str, Value]:
        """Return a configuration with the changes of all trials that were faster than the recipe.

        If two trials have different values of a parameter, the faster trial determines the value.
        """
        recipe = self.trials[0].measured.rate or 0.0
        faster = [one for one in self.trials
                  if (one.measured.rate or 0.0) > recipe * (1 + CLOSE)]
        chosen = self.space.default
        for one in sorted(faster, key=lambda one: one.measured.rate or 0.0):
            chosen.update(self.space.changed(one.configuration))
        return chosen

    @property
    def best(self) -> Trial | None:
        """The fastest trial; None if no trial has a rate.

        Of about equally fast trials, it is the trial with the fewest changes.
        """
        rates = {one.number: one.measured.rate for one in self.trials
                 if one.measured.rate is not None}
        if not rates:
            return None
        least = max(rates.values()) * (1 - CLOSE)
        near = [one for one in self.trials if rates.get(one.number, -1.0) >= least]
        return min(near, key=lambda one: (
            len(self.space.changed(one.configuration)), -rates[one.number]))


def load_optuna() -> Any:
    """Return the package Optuna, which is imported only for a search.

    Raises:
        UsageError: Optuna is not installed.
    """
    try:
        return importlib.import_module(PACKAGE)
    except ImportError as error:
        command = [sys.executable, "-m", "pip", "install", f"{PACKAGE}>=4.5"]
        raise UsageError(
            f"`trimaran tune` needs the package {PACKAGE}: {error}", code="package-missing",
            hint=f"install it beside Trimaran: {process.shell_line(command)}",
        ) from error
