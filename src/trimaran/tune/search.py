"""Search the configurations of a recipe with Optuna, by measuring some of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimaran.errors import Interrupted, UsageError
from trimaran.tune.space import Space, Value

PACKAGE = "optuna"

FIRST = 8
"""Trials after which the sampler uses the earlier ones, instead of random values."""

REPEATS = 50
"""Proposals in succession that are known already, after which the search ends."""

CLOSE = 0.02
"""Configurations within this fraction of the fastest one count as equally fast in the search.

The confirmation decides; this only prefers the one with the fewest changes.
"""


@dataclass(frozen=True)
class Measured:
    """The result of one trial.

    Attributes:
        rate: the measured rate; None: the trial failed.
        failure: why it failed.
        seconds: duration of the trial.
        directory: run directory, relative to the folder of the tuning; None: nothing was run.
    """

    rate: float | None
    failure: str | None = None
    seconds: float = 0.0
    directory: str | None = None


@dataclass(frozen=True)
class Trial:
    """A measured configuration."""

    number: int
    configuration: dict[str, Value]
    measured: Measured


@dataclass
class Search:
    """The trials so far; the first one has the configuration of the recipe itself.

    Attributes:
        space: the parameters.
        measure: runs a configuration under a number, and returns its result.
        may_go_on: returns whether the time is sufficient for another trial.
        seed: seed of the sampler.
        tell: called after each trial.
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
        """Measure `Space.first`, its fast changes together, then what the sampler proposes.

        The search ends when the time is used up, or when nothing new is proposed.

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
        """Try one proposal of the sampler; return whether it was a new one."""
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
        """Return all changes together that were faster than the recipe alone.

        Where they contradict each other, the faster one counts.
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
        """The fastest trial; of those that are about as fast, the one with the fewest changes."""
        return best(self.space, self.trials)


def best(space: Space, trials: Sequence[Trial]) -> Trial | None:
    """Return the trial to prefer, or None if no trial has a rate."""
    rates = {one.number: one.measured.rate for one in trials if one.measured.rate is not None}
    if not rates:
        return None
    least = max(rates.values()) * (1 - CLOSE)
    near = [one for one in trials if rates.get(one.number, -1.0) >= least]
    return min(near, key=lambda one: (len(space.changed(one.configuration)), -rates[one.number]))


def load_optuna() -> Any:
    """Return the package Optuna, which is imported only for a search.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module(PACKAGE)
    except ImportError as error:
        raise UsageError(
            f"`trimaran tune` needs the package {PACKAGE}: {error}", code="package-missing",
            hint=f"install it beside Trimaran: {installing()}",
        ) from error


def installing() -> str:
    """Return the command that installs Optuna for the Python of Trimaran."""
    import shlex
    import sys

    return shlex.join([sys.executable, "-m", "pip", "install", f"{PACKAGE}>=4.5"])
