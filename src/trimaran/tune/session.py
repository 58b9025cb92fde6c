"""Run a tuning: search within the time limit, confirm the result, and record both steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trimaran.errors import Interrupted, TrimaranError, UsageError
from trimaran.reporting import Reporter
from trimaran.tune import confirmation, derive
from trimaran.tune.record import Confirmation, TrialRecord, TuningRecord
from trimaran.tune.search import Measured, Search, Trial
from trimaran.tune.space import Configuration, Space

STEPS = 4
"""Number of steps of a tuning: data, image, search, confirmation."""

SLOWER = 3.0
"""A trial is stopped after this multiple of the duration of the unchanged recipe's run."""

TRIALS = "trials"
"""Subfolder with the run directories of the trials."""

SPARE = 10.0
"""Seconds that are added to the time limit of a trial."""

RUNS = 2 * confirmation.PLANNED + 4
"""Minimum time of a tuning, in multiples of the duration of a run of the recipe.

The time is for the measurement of the time of a step, the trial of the recipe itself, two other
trials, and the `confirmation.PLANNED` pairs of runs of the confirmation.
"""

Measure = Callable[[Configuration, str, float], Measured]
"""A function that runs a configuration and returns the result.

Its arguments are the configuration, the subfolder for the run, and the time limit in seconds.
"""


@dataclass
class Session:
    """A tuning in progress.

    Attributes:
        space: the parameters.
        record: the record, which is written to `folder` after each change.
        folder: folder of the tuning.
        measure: function that runs a configuration.
        reporter: shows progress.
        left: function that returns the remaining time in seconds.
        wall: duration of a run of the unchanged recipe in seconds; 0 before this run has ended.
    """

    space: Space
    record: TuningRecord
    folder: Path
    measure: Measure
    reporter: Reporter
    left: Callable[[], float]
    wall: float = field(default=0.0)

    @property
    def reserved(self) -> float:
        """The time that the search leaves for the confirmation of its best trial, in seconds."""
        return 2 * confirmation.PLANNED * self.wall

    @property
    def limit(self) -> float:
        """The time limit in seconds of each run that confirms the fastest configuration."""
        return SLOWER * self.wall + SPARE

    @property
    def trial_limit(self) -> float:
        """The time limit of the next trial, in seconds."""
        if self.wall == 0:
            return max(SPARE, self.left())
        return min(self.limit, max(self.wall, self.left() - self.reserved))

    def search(self) -> Search:
        """Search until only the time for the confirmation remains, and return the search.

        Raises:
            UsageError: the time is too short for the search, or Optuna is missing.
            TrimaranError: a run of the recipe itself failed.
        """
        found = Search(
            self.space,
            lambda number, chosen: self.measure(
                chosen, f"{TRIALS}/{number:03}", self.trial_limit),
            lambda: self.left() > self.reserved + self.wall,
            self.record.seed, self._tell,
        )
        with self.reporter.bar("searching", None):
            found.run()
        return found

    def _tell(self, done: Trial) -> None:
        one, changed = done.measured, self.space.changed(done.configuration)
        self.record.trials.append(TrialRecord(
            number=done.number, changed=changed, rate=one.rate, failure=one.failure,
            seconds=one.seconds, directory=one.directory))
        self.record.write(self.folder)
        if done.number == 1:
            self._begin(one)
        result = one.failure if one.rate is None else self.record.text(one.rate)
        self.reporter.note(f"  trial {done.number}: {result} ({derive.shown(changed)};"
                           f" {max(0.0, self.left()):.0f} s left)")

    def _begin(self, one: Measured) -> None:
        """Check that the run of the unchanged recipe succeeded, and that time for trials is left.

        Raises:
            UsageError: the run failed, or the time is too short.
        """
        if one.rate is None:
            raise UsageError(f"{self.record.recipe} itself failed: {one.failure}",
                             code="tuning-impossible",
                             hint=f"see {self.folder / (one.directory or '')}")
        self.wall = one.seconds
        needed = self.reserved + 2 * self.wall
        if self.left() < needed:
            raise UsageError(
                f"--minutes {self.record.minutes:g}: a run of {self.record.recipe} takes"
                f" {self.wall:.0f} s, and {needed:.0f} s are needed after the first one",
                code="tuning-impossible",
                hint=_more_time(self.wall))

    def confirm(self, best: Trial) -> bool:
        """Run the recipe and the best trial alternately, and record the outcome.

        Return whether the trial is faster.

        If one of the runs fails, the record gets the reason, and the result is False.
        """
        def run(configuration: Configuration, name: str) -> Callable[[int], float | None]:
            def rate(number: int) -> float | None:
                place = f"confirmation/{number}-{name}"
                found = self.measure(configuration, place, self.limit)
                if found.rate is None and self.record.failure is None:
                    self.record.failure = f"{place}: {found.failure}"
                return found.rate
            return rate

        with self.reporter.bar("confirming", None):
            pairs = confirmation.alternate(
                run(self.space.default, "default"), run(best.configuration, "tuned"),
                lambda: self.left() > 2 * self.wall)
        if self.record.failure is not None:
            self.record.outcome = "not confirmed"
            return False
        seen = confirmation.gain(pairs)
        self.record.confirmation = Confirmation(
            pairs=[(round(default, 3), round(tuned, 3)) for default, tuned in pairs],
            gain=round(seen.value, 4), gain_low=round(seen.low, 4), gain_high=round(seen.high, 4))
        self.record.outcome = "faster" if seen.is_real else "no difference"
        return seen.is_real

    def run(self) -> Trial | None:
        """Search and confirm; return the best trial if it is confirmed as faster than the recipe.

        The outcome is also recorded. Return None if no trial is faster, or if the user stopped the
        tuning.
        """
        try:
            with self.reporter.step(3, STEPS, f"search: {', '.join(self.space.default)}"):
                found = self.search()
            best = found.best
            self.record.best = best.number if best else None
            if found.interrupted:
                self.record.outcome = "interrupted"
                return None
            if best is None or not self.space.changed(best.configuration):
                self.record.outcome = "no difference"
                return None
            with self.reporter.step(4, STEPS, f"confirmation of trial {best.number}"):
                is_faster = self.confirm(best)
            return best if is_faster else None
        except (Interrupted, KeyboardInterrupt):
            self.record.outcome = "interrupted"
            return None
        except TrimaranError:
            self.record.outcome = "failed"
            raise
        finally:
            self.record.write(self.folder)


def _more_time(wall: float) -> str:
    """Return the hint for a tuning whose time limit is too short: the minutes that it needs.

    With a limit of m minutes, a run is given at most m seconds of training, and takes at most
    `wall` seconds for everything else. All `RUNS` runs must fit into the limit:
    `RUNS` * (wall + m) <= 60 * m.

    Args:
        wall: duration of a run of the recipe in seconds.
    """
    minutes = math.ceil(RUNS * wall / (60 - RUNS)) + 1
    return f"give at least --minutes {minutes}"
