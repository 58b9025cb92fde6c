"""Run a tuning: search within the time limit, confirm the result, and record both steps."""

from __future__ import annotations

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
"""Multiple of the recipe's time after which a slow trial is stopped."""

TRIALS = "trials"
"""Subfolder with the run directories of the trials."""

SPARE = 10.0
"""Seconds that are added to the time limit of a trial."""

Measure = Callable[[Configuration, str], Measured]
"""A function that runs a configuration in a subfolder of the tuning, and returns the result."""


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
        """Seconds that the search leaves for the confirmation."""
        return 2 * confirmation.PLANNED * self.wall

    def limit(self, place: str) -> float:
        """Return the time limit, in seconds, of a run in the subfolder `place`."""
        if self.wall == 0:
            return max(SPARE, self.left())
        most = SLOWER * self.wall + SPARE
        if place.startswith(TRIALS):
            return min(most, max(self.wall, self.left() - self.reserved))
        return most

    def search(self) -> Search:
        """Search until only the time for the confirmation remains, and return the search.

        Raises:
            UsageError: the time is too short for the search, or Optuna is missing.
            TrimaranError: a run of the recipe itself failed.
        """
        found = Search(
            self.space, lambda number, chosen: self.measure(chosen, f"{TRIALS}/{number:03}"),
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
                hint=f"give at least --minutes {(needed + 2 * self.wall) / 60 + 1:.0f}")

    def confirm(self, best: Trial) -> bool:
        """Run the recipe and the best trial alternately; return whether the trial is faster.

        If one of the runs fails, the result is False.
        """
        def run(configuration: Configuration, name: str) -> Callable[[int], float | None]:
            def rate(number: int) -> float | None:
                return self.measure(configuration, f"confirmation/{number}-{name}").rate
            return rate

        with self.reporter.bar("confirming", None):
            pairs = confirmation.alternate(
                run(self.space.default, "default"), run(best.configuration, "tuned"),
                lambda: self.left() > 2 * self.wall)
        if not pairs:
            return False
        seen = confirmation.gain(pairs)
        self.record.confirmation = Confirmation(
            pairs=[(round(default, 3), round(tuned, 3)) for default, tuned in pairs],
            gain=round(seen.value, 4), gain_low=round(seen.low, 4), gain_high=round(seen.high, 4))
        return seen.is_real

    def run(self) -> Trial | None:
        """Search, confirm, and record the outcome; return the confirmed trial.

        Return None if no trial is faster than the recipe, or if the user stopped the tuning.
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
            self.record.outcome = "faster" if is_faster else "no difference"
            return best if is_faster else None
        except (Interrupted, KeyboardInterrupt):
            self.record.outcome = "interrupted"
            return None
        except TrimaranError:
            self.record.outcome = "failed"
            raise
        finally:
            self.record.write(self.folder)
