"""Run a recipe for a few steps, and read its rate from the metrics."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import ValidationError

from trimaran.errors import RunError, UsageError
from trimaran.files import write_atomic
from trimaran.recipes import library
from trimaran.recipes.cards import Argument, Metric
from trimaran.reporting import Reporter, Silent
from trimaran.run import pipeline, run_directory
from trimaran.run.pipeline import Ready
from trimaran.tune import derive
from trimaran.tune.search import Measured
from trimaran.tune.space import Configuration, Space
from trimaran.verdict import metrics
from trimaran.verdict.metrics import Event

MAX_STEPS, LOG_EVERY, EVAL_EVERY = "max-steps", "log-every", "eval-every"
"""Options by which an app trains only a few steps, without evaluation (app contract)."""

PROBE_STEPS = 8
LEAST_STEPS = 8
WINDOWS = 12
"""Number of times that a trial logs its rate: each time the rate since the previous log line."""

WARM_UP = 0.25
"""Fraction of the steps at the start whose rates are ignored, because these steps are slower."""

CHECKPOINTS = "checkpoints"

SERIOUS = frozenset({"disk-full", "file-unwritable"})
"""Codes of errors that end the search, because every further trial would fail."""


class _Quiet(Silent):
    """A reporter that shows the newest output line of a run beside the search's progress bar."""

    def __init__(self, outer: Reporter) -> None:
        super().__init__()
        self._outer = outer

    def line(self, text: str) -> None:
        """Show an output line of the training; the next line replaces it."""
        self._outer.detail(text)


@dataclass(frozen=True)
class Runner:
    """An object that runs one recipe with different settings, one after the other.

    Attributes:
        ready: the request of the recipe, with prepared data and image.
        space: the parameters.
        metric: the metric that the search maximizes, such as the throughput.
        folder: folder of the tuning.
        reporter: shows the output of the runs.
        steps: number of steps of a run.
    """

    ready: Ready
    space: Space
    metric: Metric
    folder: Path
    reporter: Reporter
    steps: int = PROBE_STEPS

    def measure(self, configuration: Configuration, place: str, limit: float) -> Measured:
        """Run a configuration in the folder `place`; return the rate, or why the run failed.

        After `limit` seconds, the run is stopped and counts as failed.

        Raises:
            TrimaranError: the disk is full, or the user stopped the run.
        """
        begin = time.monotonic()
        try:
            directory = self.run(configuration, place, limit)
            events = metrics.read_events(directory / run_directory.METRICS)
            found = rate(events, self.metric)
            failure = None
            if found is None or found <= 0:
                found, failure = None, "the run reported no rate"
        except derive.RefusedError as error:
            return Measured(None, str(error))
        except ValidationError as error:
            return Measured(None, error.errors()[0]["msg"].removeprefix("Value error, "))
        except (RunError, UsageError) as error:
            if error.code in SERIOUS:
                raise
            late = error.code == "program-timeout"
            failure = f"stopped after {limit:.0f} s" if late else (
                f"{error.code}: {error.message}")
            found = None
        return Measured(found, failure, round(time.monotonic() - begin, 1), place)

    def run(self, configuration: Configuration, place: str, limit: float) -> Path:
        """Run a configuration in the folder `place` of the tuning, and return the run directory.

        The run is stopped after `limit` seconds.

        Raises:
            TrimaranError: the run failed or was stopped.
            ValueError: the configuration is not possible.
        """
        request = self.ready.request
        derived = derive.recipe(request.recipe.recipe, self.space, configuration)
        file = self.folder / f"{place}.yaml"
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, derive.text(derived, f"A trial of {request.recipe.name}."))
        name = request.recipe.name.partition("@")[0]
        own = library.load_copy(file, name, request.recipe.card)
        changed = {**request.changes, **short(self.steps)}
        request = replace(request, recipe=own, changes=changed, out=self.folder / place)
        pipeline.check(request)
        with run_directory.claim(own, request.out) as claimed:
            try:
                pipeline.train(self.ready._replace(request=request), claimed,
                               _Quiet(self.reporter), limit)
            finally:  # the checkpoints of many trials would fill the disk
                shutil.rmtree(claimed[0] / CHECKPOINTS, ignore_errors=True)
        return claimed[0]


def short(steps: int) -> dict[str, Argument]:
    """Return the arguments with which an app trains for `steps` steps and makes no evaluation."""
    return {MAX_STEPS: steps, LOG_EVERY: max(1, steps // WINDOWS), EVAL_EVERY: 0}


class _Window(NamedTuple):
    """A rate that a trial logged.

    Attributes:
        step: number of the step after which the rate was logged.
        time_ms: time when the log line was written, in milliseconds since 1970.
        rate: the rate since the previous log line.
    """

    step: float
    time_ms: float
    rate: float


def _windows(events: Sequence[Event], metric: Metric) -> list[_Window]:
    """Return the rates that were logged after the warm-up."""
    found = [_Window(one.number("step") or 0, one.time_ms, one.finite) for one in events
             if one.key == metric.key and one.finite is not None]
    last = max((one.step for one in found), default=0)
    return [one for one in found if one.step > WARM_UP * last]


def rate(events: Sequence[Event], metric: Metric) -> float | None:
    """Return the median rate after the warm-up, in the unit of the metric; None if unknown."""
    values = [one.rate * metric.factor for one in _windows(events, metric)]
    return median(values) if values else None


def seconds_per_step(events: Sequence[Event], metric: Metric) -> float | None:
    """Return the median time in seconds of a step after the warm-up; None if it is unknown.

    The time is computed from the times of log lines. The median is used, because other work on the
    machine can make single steps many times longer.
    """
    took = [(end.time_ms - begin.time_ms) / 1000 / (end.step - begin.step)
            for begin, end in pairwise(_windows(events, metric)) if end.step > begin.step]
    return median(took) or None if took else None
